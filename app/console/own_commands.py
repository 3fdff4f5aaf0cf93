"""The user's own commands: templates filled in with the run in focus, run as argument lists, without a shell."""

import asyncio
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from textual.app import SuspendNotSupported
from textual.content import Content

from app.console.base import BaseScreen
from app.console.sheets import ConfirmSheet
from app.engine.processes import end_group, start_program
from app.engine.text import SafeText, safe_text
from app.profiles import UserCommand
from app.profiles.settings import RUN_PLACEHOLDERS
from storage import RunwardenError

DEADLINE_S: Final = 60.0
"""A command in the background is killed after this time; longer ones belong in the terminal."""
MAX_OUTPUT: Final = 65_536
"""Bytes of output that are kept; the rest is read and dropped."""
MAX_LINE: Final = 200
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)\}")


class CommandUnusableError(RunwardenError):
    """The command cannot be run; the message gives the reason."""


def filled_in(argv: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """Fill in the arguments; one argument stays one argument.

    Raises:
        CommandUnusableError: A value is missing, cannot be printed, or would be read as an option or as another folder.
    """

    def fill(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name not in known:
            raise CommandUnusableError("It needs a run: select one first.")
        value = known[name]
        at_start = placeholder.start() == 0
        # Return the value unless it is unsafe: the service or an agent chose it.
        if not value.isprintable():
            raise CommandUnusableError(f"The {name} holds characters that cannot be printed.")
        if at_start and value.startswith("-"):
            raise CommandUnusableError(f"The {name} begins with a dash: the program would take it for an option.")
        if {".", ".."}.intersection(value.split("/")) or (at_start and value.startswith("/")):
            raise CommandUnusableError(f"The {name} would lead to another folder.")
        return value

    return tuple(_PLACEHOLDER.sub(fill, template) for template in argv)


async def run_beside(argv: Sequence[str], *, deadline_s: float = DEADLINE_S) -> tuple[int | None, SafeText]:
    """Run a command without a terminal and read its output.

    Returns its exit code, None if it took too long and was killed, and the last line that it wrote to either stream.

    Raises:
        CommandUnusableError: It did not start.
    """
    try:
        process = await start_program(*argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, ValueError) as error:
        raise _did_not_start(argv, error) from error
    try:
        async with asyncio.timeout(deadline_s):
            tail = b""
            while process.stdout is not None and (chunk := await process.stdout.read(MAX_OUTPUT)):
                tail = (tail + chunk)[-MAX_OUTPUT:]
            lines = [line.strip() for line in tail.decode("utf-8", errors="replace").split("\n")]
            last = next(filter(None, reversed(lines)), "")
            return await process.wait(), safe_text(last, limit=MAX_LINE)
    except TimeoutError:
        return None, safe_text("")
    finally:
        # The whole process session: the command may have started others.
        await end_group(process)


def _did_not_start(argv: Sequence[str], error: Exception) -> CommandUnusableError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CommandUnusableError(f"{argv[0]} did not start: {reason}. Correct argv in [[commands]].")


async def run_own_command(screen: BaseScreen, command: UserCommand) -> None:
    """Run a command on the run in focus and report how it ended, or why it did not start."""
    session = screen.session
    name = safe_text(command.name, limit=60)
    try:
        argv = filled_in(command.argv, await _values(screen, command))
        if command.confirm:
            text = [Content(safe_text(shlex.join(argv), limit=2_000))]
            sheet = ConfirmSheet(f"Run: {name}", text, verb="Run it", leaving="Don't run it")
            if not await screen.app.push_screen_wait(sheet):
                return
        if command.terminal:
            code: int | None = _run_in_terminal(screen, argv)
            output = ""
        else:
            session.notify(f"{name}: running…")
            code, last_line = await run_beside(argv)
            output = f": {last_line}" if last_line else ""
    except CommandUnusableError as error:
        session.notify(f"{name}: {error}", severity="error")
        return
    if code == 0:
        session.notify(f"✓ {name}{output}")
    elif code is None:
        session.notify(f"✗ {name} timed out; terminal = true removes the limit", severity="error")
    else:
        session.notify(f"✗ {name} exited with status {code}{output}", severity="error")


async def _values(screen: BaseScreen, command: UserCommand) -> dict[str, str]:
    """The values of the placeholders; those of a run only if the command has one and a run is in focus."""
    profile = screen.acting_profile
    values = {"profile": profile.name, "base_url": profile.base_url}
    ids = screen.chosen_ids
    engine = screen.acting_engine
    if not (ids and set(RUN_PLACEHOLDERS).intersection(_PLACEHOLDER.findall("\n".join(command.argv)))):
        return values
    if len(ids) > 1:
        raise CommandUnusableError(f"{len(ids):,} runs are marked: it is run on one. esc unmarks them.")
    if isinstance(engine, str) or (detail := await engine.cache.detail(ids[0])) is None:
        return values
    run = detail.run
    run_values = {
        "run_id": run.run_id,
        "repository": run.repository.label,
        "branch": run.branch_name,
        "status": run.status,
    }
    return values | run_values


def _run_in_terminal(screen: BaseScreen, argv: Sequence[str]) -> int:
    """Give the command the terminal until it ends; its exit code."""
    try:
        with screen.app.suspend():
            # While a pager has the terminal, ctrl+c is the pager's.
            return subprocess.run(argv, check=False).returncode
    except SuspendNotSupported as error:
        by_hand = f"There is no terminal for it. Run it by hand: {shlex.join(argv)}"
        raise CommandUnusableError(by_hand) from error
    except (OSError, ValueError) as error:
        raise _did_not_start(argv, error) from error
