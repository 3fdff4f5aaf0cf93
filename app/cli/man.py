"""`runwarden man`: the help of every command as one text, in a pager."""

import os
from collections.abc import Iterator

import click

from app.cli.exits import Exit
from app.cli.options import ScreenCommand


@click.command(cls=ScreenCommand)
@click.argument("command", nargs=-1)
@click.pass_context
def man(context: click.Context, /, *, command: tuple[str, ...]) -> int:
    """Show the help of every command, or of one, in $PAGER or less; as plain text into a pipe."""
    wanted = context.find_root()
    for name in command:
        if not isinstance(wanted.command, click.Group):
            raise click.UsageError(f"{wanted.command_path} has no commands.", context)
        _, found, _ = wanted.command.resolve_command(wanted, [name])
        if found is not None:  # It is: an unknown name was refused.
            wanted = click.Context(found, wanted, name)
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(_texts(wanted))
    return Exit.DONE


def _texts(context: click.Context) -> Iterator[str]:
    """The help of a command and of all below it."""
    yield context.get_help()
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if below := context.command.get_command(context, name):
                for text in _texts(click.Context(below, context, name)):
                    yield f"\n\n\n{text}"
