"""`runwarden console`, `demo`, `serve` and `service`: commands that use the terminal or run a service."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final, NoReturn

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, command_error, require_extra
from app.cli.options import ScreenCommand
from app.cli.running import begin_log, run

if TYPE_CHECKING:
    from app.profiles import Profile, Settings

WEB_DRIVER: Final = "textual.drivers.web_driver:WebDriver"
"""The driver that `textual serve` gives to the processes it starts."""
_CHECK_PARENT_S: Final = 1.0
_KILL_AFTER_S: Final = 5.0
DATA_DIR_VARIABLE: Final = "RUNWARDEN_SERVICE_DATA_DIR"
PASS_THROUGH: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_CHECK_PARENT_S)
    os.kill(os.getpid(), signal.SIGTERM)
    # The app may hang without a terminal to draw on.
    time.sleep(_KILL_AFTER_S)
    os._exit(128 + signal.SIGTERM)


def has_screen() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@click.command(cls=ScreenCommand)
@click.pass_obj
def console(invocation: Invocation, /) -> int:
    """Open the console. Without a terminal, print one snapshot after the first sync."""
    settings = invocation.settings()
    is_asked_for = invocation.profile_name or settings.default_profile or invocation.token
    if not settings.profiles and not is_asked_for and has_screen():
        # A newcomer: nothing is configured, and a terminal is there to answer questions on.
        from app.profiles import config_path
        from app.profiles.screen_onboarding import run_onboarding

        code = run_onboarding(config_path(invocation.config_file, os.environ))
        if code != Exit.DONE:
            return code
        settings = invocation.settings()
    return show(invocation, settings, invocation.profile(settings))


def show(invocation: Invocation, settings: "Settings", profile: "Profile") -> int:
    """Open the console on a terminal, or print a snapshot elsewhere; return the exit code."""
    in_browser = os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER
    if in_browser:
        # This process ends with its server, even if that is killed.
        Thread(target=_end_with, args=(os.getppid(),), name="server watch", daemon=True).start()
    if in_browser or has_screen():
        from app.console import run_console

        if invocation.verbose and invocation.log_file is None:
            raise command_error("usage", "--verbose needs --log-file FILE here: the console uses the screen.")
        begin_log(invocation)
        return run_console(settings, profile)

    async def snapshot() -> int:
        # The console opens without this import, and a signal during it is not lost.
        from app.cli.snapshot import print_snapshot

        return await print_snapshot(invocation.output, settings, profile)

    return run(invocation, snapshot)


@click.command(cls=ScreenCommand)
@click.option("--no-console", is_flag=True, help="Run the service in the foreground; print one JSON line first.")
@click.option("--keep", is_flag=True, help="Keep all files at the end, and print how to reopen them.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Create all files in this folder, or reopen a kept one.",
)
@click.option(
    "--agent",
    default="",
    metavar="PROGRAM",
    help="Add your program as an agent, with your key: claude, codex, gemini, opencode or aider.",
)
@click.pass_obj
def demo(invocation: Invocation, /, *, no_console: bool, keep: bool, folder: Path | None, agent: str) -> int:
    """Start a service with repositories, scripted stand-in agents and runs, and open the console on it."""
    require_extra("service")
    from app.demo import run_demo
    from app.demo.service_process import DemoError

    try:
        return run_demo(None if no_console else partial(show, invocation), keep=keep, folder=folder, agent=agent)
    except DemoError as error:
        for line in error.log:
            invocation.output.note(line)
        heading = " Its last output is above." if error.log else ""
        raise command_error("demo", f"{error}{heading}", log=list(error.log)) from error


ARGUMENTS: Final = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


@click.command(context_settings=PASS_THROUGH, add_help_option=False)
@ARGUMENTS
@click.pass_obj
def serve(invocation: Invocation, /, *, arguments: tuple[str, ...]) -> NoReturn:
    """Run the self-hosted service in the foreground; its own --data-dir, --host and --port follow."""
    _replace_process(invocation, ["serve", *arguments])


@click.command(context_settings=PASS_THROUGH, add_help_option=False)
@ARGUMENTS
@click.pass_obj
def service(invocation: Invocation, /, *, arguments: tuple[str, ...]) -> NoReturn:
    """Administer a self-hosted service: org, token, offer, host, repository, agent."""
    _replace_process(invocation, list(arguments))


def _replace_process(invocation: Invocation, arguments: list[str]) -> NoReturn:
    if invocation.read_only:
        raise command_error("read_only", "--read-only cannot be used here: a service and its administration write.")
    require_extra("service")  # Checked here, because the service cannot start without it, and so cannot report it.
    if invocation.data_dir is not None:
        # The option may stand before or after the command's name; the one after it wins.
        os.environ[DATA_DIR_VARIABLE] = str(invocation.data_dir)
    if invocation.asked_format is not None:
        arguments = ["--output", invocation.asked_format, *arguments]
    sys.stdout.flush()
    # -P: a folder called `service` in the current directory is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "service", *arguments])
