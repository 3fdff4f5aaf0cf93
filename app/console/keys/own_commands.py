"""The user's own commands: a template filled in with the run in focus, and run as an argument list, without a shell."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from textual.binding import Binding

from app.text import SafeText, safe_text

if TYPE_CHECKING:
    from app.config import Command
    from storage.records import Run

DEADLINE_S: Final = 60.0
"""A command beside the console that takes longer is ended; one that needs more time belongs into the terminal."""
LONGEST_OUTPUT: Final = 65_536
"""Bytes of its output that are looked at; the rest is read and dropped."""
CUT: Final = 200
_RUN_PLACES: Final = frozenset({"run_id", "repository", "branch", "status"})
_PLACE: Final = re.compile(r"\{([a-z_]+)\}")


class CommandUnusableError(Exception):
    """The command cannot be run on this; the message says why, and is for a person."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a command that ran beside the console."""

    code: int | None
    """None: it took too long and was ended."""
    last_line: SafeText
    """Of its output, both streams; empty if it said nothing."""


def own_bindings(commands: Sequence["Command"]) -> list[Binding]:
    """The keys of the commands that have one."""
    return [
        Binding(command.key, f"own_command({n})", safe_text(command.name, limit=40), show=False, id=f"own.{n}")
        for n, command in enumerate(commands)
        if command.key
    ]


def needs_run(argv: Sequence[str]) -> bool:
    """Whether the template has a place for something of a run."""
    return bool(_RUN_PLACES.intersection(_PLACE.findall("\n".join(argv))))


def facts(profile: str, base_url: str, run: "Run | None") -> dict[str, str]:
    """What the places of a template are filled in with."""
    known = {"profile": profile, "base_url": base_url}
    if run is not None:
        label = run.repository.label
        known |= {"run_id": run.run_id, "repository": label, "branch": run.branch_name, "status": run.status}
    return known


def filled_in(argv: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments, each with its places filled in; one argument stays one argument.

    Raises:
        CommandUnusable: A value is missing, or would be read as an option, as another folder, or not at all.
    """
    return tuple(_argument(template, known) for template in argv)


def shown(argv: Sequence[str]) -> SafeText:
    """A command as a shell would want it, to be read before it is run."""
    return safe_text(shlex.join(argv), limit=2_000)


async def run_beside(argv: Sequence[str], *, deadline_s: float = DEADLINE_S) -> Ended:
    """Runs a command without a terminal, and reads what it says.

    Raises:
        CommandUnusable: It did not start.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _did_not_start(argv, error) from error
    try:
        async with asyncio.timeout(deadline_s):
            tail = await _tail(process)
            return Ended(await process.wait(), _last_line(tail))
    except TimeoutError:
        return Ended(None, safe_text(""))
    finally:
        await _end(process)


def run_in_terminal(argv: Sequence[str]) -> int:
    """Runs a command that has the terminal to itself; its exit code. Blocks.

    Raises:
        CommandUnusable: It did not start.
    """
    try:
        return subprocess.run(argv, check=False).returncode
    except (OSError, ValueError) as error:
        raise _did_not_start(argv, error) from error


def _argument(template: str, known: Mapping[str, str]) -> str:
    def fill(place: re.Match[str]) -> str:
        name = place[1]
        if name not in known:
            raise CommandUnusableError("It needs a run, and there is none in focus.")
        return _refuse_unsafe(name, known[name], at_start=place.start() == 0)

    return _PLACE.sub(fill, template)


def _refuse_unsafe(name: str, value: str, *, at_start: bool) -> str:
    """The value, which the service or an agent chose."""
    if not value.isprintable():
        raise CommandUnusableError(f"The {name} holds characters that cannot be printed.")
    if at_start and value.startswith("-"):
        raise CommandUnusableError(f"The {name} begins with a dash: the program would take it for an option.")
    if {".", ".."}.intersection(value.split("/")) or (at_start and value.startswith("/")):
        raise CommandUnusableError(f"The {name} would lead to another folder.")
    return value


def _did_not_start(argv: Sequence[str], error: Exception) -> CommandUnusableError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CommandUnusableError(f"{argv[0]} did not start: {why}. Correct argv in [[commands]].")


async def _tail(process: asyncio.subprocess.Process) -> bytes:
    tail = b""
    if process.stdout is not None:
        while chunk := await process.stdout.read(LONGEST_OUTPUT):
            tail = (tail + chunk)[-LONGEST_OUTPUT:]
    return tail


def _last_line(output: bytes) -> SafeText:
    lines = output.decode("utf-8", errors="replace").split("\n")
    return safe_text(next((line.strip() for line in reversed(lines) if line.strip()), ""), limit=CUT)


async def _end(process: asyncio.subprocess.Process) -> None:
    # The whole session: a command may have started others.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
