"""`runwarden completion` and `runwarden man`: help while a command is typed, and the help of every command."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from app.cli.completion import VARIABLE
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error
from app.cli.options import ScreenCommand
from app.engine.atomic_file import replacing


@click.command(cls=ScreenCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), required=False)
@click.option("--install", is_flag=True, help="Write the script where the shell finds it, and say where.")
@click.pass_context
def completion(context: click.Context, /, *, shell: str | None, install: bool) -> int:
    """Print the script that completes commands, options, profiles, repositories and run ids; by default for $SHELL."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise command_error("usage", "Name the shell: runwarden completion bash, zsh or fish.")
    invocation = context.ensure_object(Invocation)
    script = kind(context.find_root().command, {}, "runwarden", VARIABLE).source()
    if not install:
        invocation.output.print(script)
        return Exit.DONE
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = {
        "bash": data / "bash-completion/completions/runwarden",
        "zsh": data / "zsh/site-functions/_runwarden",
        "fish": config / "fish/completions/runwarden.fish",
    }[name]
    say, quoted = invocation.output.text, shlex.quote
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(f"{script}\n")
        say(f"Written to {path}. It works in the next shell that you open.")
        if name == "bash":
            say(f"It needs the package bash-completion; without it, add to ~/.bashrc: source {quoted(str(path))}")
        if name == "zsh":
            # It searches no folder of the user.
            rc = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
            folder = quoted(str(path.parent))
            line = f"fpath=({folder} $fpath); autoload -Uz compinit && compinit  # runwarden completion"
            if not rc.exists() or line not in rc.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                with rc.open("a", encoding="utf-8") as out:
                    out.write(f"\n{line}\n")
                say(f"Added one line to {rc}: {line}")
    except OSError as error:
        raise command_error("usage", f"{error.filename or name} cannot be written: {error.strerror}.") from error
    return Exit.DONE


@click.command(cls=ScreenCommand)
@click.argument("command", nargs=-1)
@click.pass_context
def man(context: click.Context, /, *, command: tuple[str, ...]) -> int:
    """Show the help of every command, or of one, in $PAGER or less; as plain text into a pipe."""
    parent = context.find_root()
    for name in command:
        if not isinstance(parent.command, click.Group):
            raise click.UsageError(f"{parent.command_path} has no commands.", context)
        _, child, _ = parent.command.resolve_command(parent, [name])
        if child is not None:  # It is: an unknown name was refused.
            parent = click.Context(child, parent, name)
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(_texts(parent))
    return Exit.DONE


def _texts(context: click.Context) -> Iterator[str]:
    yield context.get_help()
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if below := context.command.get_command(context, name):
                for text in _texts(click.Context(below, context, name)):
                    yield f"\n\n\n{text}"
