"""`runwarden completion`: names, options, runs and more completed by bash, zsh and fish."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import ScreenCommand
from app.engine.atomic_file import replacing
from app.profiles import CACHE_FILE, ConfigError, data_folder
from storage.errors import StorageError
from storage.records import STATUS_ORDER, RunFilter

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
    """Write the script, and print where; zsh also gets a line in `.zshrc`: it searches no folder of the user."""
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
    if shell != "zsh":
        return
    rc = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    folder = shlex.quote(str(path.parent))
    line = f"fpath=({folder} $fpath); autoload -Uz compinit && compinit  # runwarden completion"
    if not rc.exists() or line not in rc.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        with rc.open("a", encoding="utf-8") as out:
            out.write(f"\n{line}\n")
        yield f"Added one line to {rc}: {line}"


def suggestions(kind: str, ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The values of a kind that begin with `incomplete`, without a request; none if the files cannot be read."""
    invocation = ctx.ensure_object(Invocation)
    try:
        found = invocation.run(lambda: _found(kind, invocation))
    except (ConfigError, StorageError, OSError):
        return []
    given = ctx.params.get(param.name or "") or ()
    return [
        CompletionItem(value, help=said) for value, said in found if value.startswith(incomplete) and value not in given
    ]


async def _found(kind: str, invocation: Invocation) -> list[tuple[str, str]]:
    """The values of a kind, each with a remark."""
    settings = invocation.settings(quietly=True)
    if kind == "profiles":
        return [(profile.name, profile.base_url) for profile in settings.profiles]
    if kind == "automations":
        return [(rule.name, "") for rule in settings.automations]
    path = None
    with suppress(ConfigError):  # No profile is named, or an unknown one.
        path = data_folder(settings, invocation.profile(settings)) / CACHE_FILE
    if path is None or not path.exists():
        return [(status, "") for status in STATUS_ORDER] if kind == "statuses" else []
    from storage.cache.cache import Cache  # sqlite3

    async with await Cache.open(path) as cache:
        match kind:
            case "statuses":
                return [(status, "") for status in await cache.known_statuses()]
            case "repositories":
                return [(label, "") for label in await cache.repositories()]
            case _:
                runs = await cache.runs(RunFilter(), NEWEST)
                return [(run.run_id, f"{run.status} {run.repository.label} {run.branch_name}") for run in runs]


def completed_by_service(arguments: Iterable[str], incomplete: str) -> Items:
    """The suggestions of the service's own command line, which runs as a process of its own."""
    words = ["runwarden", *arguments, incomplete]
    asked = {
        "_RUNWARDEN SERVICE_COMPLETE": "zsh_complete",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "service"],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    lines = done.stdout.splitlines()
    return [
        CompletionItem(value, type=kind, help=None if said == "_" else said)
        for kind, value, said in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
    ]
