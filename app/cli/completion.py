"""`runwarden completion`: names, options, runs and more completed by bash, zsh and fish."""

import os
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
from click.shell_completion import CompletionItem, get_completion_class

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import ScreenCommand

if TYPE_CHECKING:
    from app.config import Settings
    from storage.cache import Cache

T = TypeVar("T")
VARIABLE: Final = "_RUNWARDEN_COMPLETE"
"""Set by the shells' scripts; click answers it."""
NEWEST: Final = 200
"""How many of the newest runs are suggested."""
Items = list[CompletionItem[str]]


@click.command(cls=ScreenCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.option("--install", is_flag=True, help="Write the script where the shell finds it, and say where.")
@click.pass_obj
def completion(invocation: Invocation, /, *, shell: str | None, install: bool) -> int:
    """Print the script that completes commands, options, profiles, repositories and run ids; by default for $SHELL."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise failed("usage", "Name the shell: runwarden completion bash, zsh or fish.")
    from app.cli import root

    script = kind(root, {}, "runwarden", VARIABLE).source()
    if not install:
        invocation.output.print(script)
        return Exit.DONE
    try:
        for line in _install(name, f"{script}\n"):
            invocation.output.text(line)
    except OSError as error:
        raise failed("usage", f"{error.filename or name} cannot be written: {error.strerror}.") from error
    return Exit.DONE


def _install(shell: str, script: str) -> Iterable[str]:
    from app.atomic_file import replacing

    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = {
        "bash": data / "bash-completion/completions/runwarden",
        "zsh": data / "zsh/site-functions/_runwarden",
        "fish": config / "fish/completions/runwarden.fish",
    }[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(script)
    yield f"Written to {path}. It works in the next shell that you open."
    if shell == "bash":
        yield f"It needs the package bash-completion; without it, add to ~/.bashrc: source {shlex.quote(str(path))}"
    if shell == "zsh":
        yield from _extend_zshrc(path.parent)


def _extend_zshrc(folder: Path) -> Iterable[str]:
    """Add the folder to the user's `.zshrc`, unless it is there; zsh searches no folder of the user by default."""
    rc = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    line = f"fpath=({shlex.quote(str(folder))} $fpath); autoload -Uz compinit && compinit  # runwarden completion"
    if rc.exists() and line in rc.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        return
    with rc.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    yield f"Added one line to {rc}: {line}"


class LocalCompletion(click.types.StringParamType):
    """Text that is completed from local data, without a request."""

    def __init__(self, find: Callable[["Settings", "Cache | None"], Awaitable[Iterable[tuple[str, str]]]]) -> None:
        self._find = find

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
        """The values that begin with `incomplete`; none if the files cannot be read."""
        from app.config import ConfigError
        from storage.errors import StorageError

        try:
            found = ctx.ensure_object(Invocation).run(lambda: self._held(ctx.ensure_object(Invocation)))
        except (ConfigError, StorageError, OSError):
            return []
        taken = ctx.params.get(param.name or "") or ()
        return [
            CompletionItem(value, help=help_text)
            for value, help_text in found
            if value.startswith(incomplete) and value not in taken
        ]

    async def _held(self, invocation: Invocation) -> list[tuple[str, str]]:
        from app.config import CACHE_FILE, ConfigError, data_folder
        from storage.cache import Cache

        settings = invocation.settings(quietly=True)
        try:
            path = data_folder(settings, invocation.profile(settings)) / CACHE_FILE
        except ConfigError:
            return list(await self._find(settings, None))  # No profile is named, or an unknown one.
        if not path.exists():
            return list(await self._find(settings, None))
        async with await Cache.open(path) as cache:
            return list(await self._find(settings, cache))


async def _runs(_: "Settings", cache: "Cache | None") -> Iterable[tuple[str, str]]:
    from storage.records import RunFilter

    runs = await cache.runs(RunFilter(), NEWEST) if cache else ()
    return [(run.run_id, f"{run.status} {run.repository.label} {run.branch_name}") for run in runs]


async def _statuses(_: "Settings", cache: "Cache | None") -> Iterable[tuple[str, str]]:
    from storage.records import STATUS_ORDER

    known = await cache.known_statuses() if cache else STATUS_ORDER
    return [(status, "") for status in known]


async def _repositories(_: "Settings", cache: "Cache | None") -> Iterable[tuple[str, str]]:
    return [(label, "") for label in (await cache.repositories() if cache else ())]


async def _profiles(settings: "Settings", _: "Cache | None") -> Iterable[tuple[str, str]]:
    return [(profile.name, profile.base_url) for profile in settings.profiles]


async def _automations(settings: "Settings", _: "Cache | None") -> Iterable[tuple[str, str]]:
    return [(rule.name, "") for rule in settings.automations]


PROFILE: Final = LocalCompletion(_profiles)
COMPLETED: Final = {
    "run_id": LocalCompletion(_runs),
    "run_ids": LocalCompletion(_runs),
    "statuses": LocalCompletion(_statuses),
    "repository": LocalCompletion(_repositories),
    "repositories": LocalCompletion(_repositories),
    "automations.name": LocalCompletion(_automations),
    "automations.names": LocalCompletion(_automations),
}
"""The values to suggest, by a parameter's name or by `group.parameter`."""


def suggest(group: str, command: click.Command) -> None:
    """Let a command of a group complete local data."""
    for param in command.params:
        param.type = COMPLETED.get(f"{group}.{param.name}") or COMPLETED.get(param.name or "") or param.type


def completed_by_service(arguments: Iterable[str], incomplete: str) -> Items:
    """The suggestions of the service's own command line, which runs as a process of its own."""
    words = ["runwarden", *arguments, incomplete]
    asked = {
        "_RUNWARDEN SERVICE_COMPLETE": "zsh_complete",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "service"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    lines = done.stdout.splitlines()
    return [
        CompletionItem(value, type=kind, help=None if said == "_" else said)
        for kind, value, said in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
    ]
