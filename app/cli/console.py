"""`runwarden console`: the screen, or where there is none, a snapshot."""

import os
import sys
from typing import TYPE_CHECKING

import click

from app.cli.browser import end_with_server, is_in_browser
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import ScreenCommand
from app.cli.output import Output

if TYPE_CHECKING:
    from app.config import Profile, Settings


@click.command(cls=ScreenCommand)
@click.pass_obj
def console(invocation: Invocation, /) -> int:
    """Open the console. Without a terminal, print one snapshot after the first sync."""
    return open_console(invocation)


def open_console(invocation: Invocation) -> int:
    """Shows the profile that was asked for; returns the exit code."""
    settings = invocation.settings()
    if _is_newcomer(invocation, settings):
        code = _onboard(invocation)
        if code != Exit.DONE:
            return code
        settings = invocation.settings()
    return show(invocation, settings, invocation.profile(settings))


def _is_newcomer(invocation: Invocation, settings: "Settings") -> bool:
    """Whether nothing is configured and nothing was asked for, on a terminal where questions can be answered."""
    asked = invocation.profile_name or settings.default_profile or invocation.token_stream
    return not settings.profiles and not asked and sys.stdin.isatty() and sys.stdout.isatty()


def _onboard(invocation: Invocation) -> int:
    from app.config import config_path
    from app.console.onboarding.app import run_onboarding

    return run_onboarding(config_path(invocation.config_file, os.environ))


def show(invocation: Invocation, settings: "Settings", profile: "Profile") -> int:
    """Opens the console on a terminal, else prints a snapshot; returns the exit code."""
    if _has_screen():
        from app.console import run_console

        return run_console(settings, profile)
    return invocation.run(lambda: _snapshot(invocation.output, settings, profile))


def _has_screen() -> bool:
    if is_in_browser(os.environ):
        end_with_server()
        return True
    return sys.stdin.isatty() and sys.stdout.isatty()


async def _snapshot(output: Output, settings: "Settings", profile: "Profile") -> int:
    from app.cli.snapshot import snapshot
    from app.engine import Engine

    async with await Engine.open(settings, profile, actor="cli") as engine:
        if engine.token_problem is not None:
            raise engine.token_problem
        problem = await engine.refresh()
        for line in await snapshot(engine, width=output.width):
            output.text(line)
    if problem is not None:
        raise CommandFailedError(of_api_error(problem, hint="What is shown above was seen earlier."))
    return Exit.DONE
