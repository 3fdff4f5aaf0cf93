"""`runwarden demo`: the service and the console together, with nothing to configure."""

from functools import partial
from pathlib import Path

import click

from app.cli.console import show
from app.cli.context import Invocation
from app.cli.exits import failed


@click.command(short_help="Try it: a service, repositories, runs and the console.")
@click.option("--no-console", is_flag=True, help="Run the service in the foreground; print one JSON line first.")
@click.option("--keep", is_flag=True, help="Keep everything that was made, and say where.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Make everything in this folder."
)
@click.pass_obj
def demo(invocation: Invocation, /, *, no_console: bool, keep: bool, folder: Path | None) -> int:
    """Start a service of your own with repositories, agents and runs, and the console on it."""
    from app.demo import run_demo
    from app.demo.process import DemoError

    try:
        return run_demo(None if no_console else partial(show, invocation), keep=keep, folder=folder)
    except DemoError as error:
        raise failed("demo", str(error)) from error
