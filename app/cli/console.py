"""`runwarden console`: the screen, or where there is none, a snapshot."""

import sys

import click

from app.cli.context import Invocation
from app.cli.exits import CommandFailed, Exit, of_api_error
from app.cli.options import ScreenCommand


@click.command(cls=ScreenCommand)
@click.pass_obj
def console(invocation: Invocation) -> int:
    """Open the console. Without a terminal, print one snapshot after the first sync."""
    return open_console(invocation)


def open_console(invocation: Invocation) -> int:
    """Opens the console on a terminal, else prints a snapshot; returns the exit code."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        from app.console import run_console

        settings = invocation.settings()
        return run_console(settings, invocation.profile(settings))
    return invocation.run(lambda: _snapshot(invocation))


async def _snapshot(invocation: Invocation) -> int:
    from app.cli.snapshot import snapshot

    async with invocation.engine(needs_token=True) as engine:
        problem = await engine.refresh()
        for line in await snapshot(engine, width=invocation.output.width):
            invocation.output.text(line)
    if problem is not None:
        raise CommandFailed(of_api_error(problem, hint="What is shown above was seen earlier."))
    return Exit.DONE
