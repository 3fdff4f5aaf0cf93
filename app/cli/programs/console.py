"""`runwarden console` and `runwarden demo`: the console, or its first screen as text where there is no terminal."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed, of_api_error, require_extra
from app.cli.options import ScreenCommand
from app.cli.output import Output
from app.times import exact_ago, rfc3339

if TYPE_CHECKING:
    from app.config import Profile, Settings
    from app.engine import Engine
    from storage.records import LinkState, PlatformHealth

WEB_DRIVER: Final = "textual.drivers.web_driver:WebDriver"
"""Set by textual-serve in the processes it starts."""
_CHECK_PARENT_S: Final = 1.0
_KILL_AFTER_S: Final = 5.0
_MOST_RUNS: Final = 20
"""Runs in a snapshot."""
_DAY: Final = timedelta(days=1)
_START_ONE: Final = "No runs yet. Start one: runwarden runs start -R owner/repo INSTRUCTIONS"


def is_in_browser(env: Mapping[str, str]) -> bool:
    """Whether `runwarden web` shows this process in a browser."""
    return env.get("TEXTUAL_DRIVER") == WEB_DRIVER


def end_with_server() -> None:
    """End this process when its parent ends, even if the parent is killed."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="server watch", daemon=True).start()


def _watch(server: int) -> None:
    while os.getppid() == server:
        time.sleep(_CHECK_PARENT_S)
    os.kill(os.getpid(), signal.SIGTERM)
    # The app may hang without a terminal to draw on.
    time.sleep(_KILL_AFTER_S)
    os._exit(128 + signal.SIGTERM)


@click.command(cls=ScreenCommand)
@click.pass_obj
def console(invocation: Invocation, /) -> int:
    """Open the console. Without a terminal, print one snapshot after the first sync."""
    return open_console(invocation)


def open_console(invocation: Invocation) -> int:
    """Show the chosen profile; return the exit code."""
    settings = invocation.settings()
    if _is_newcomer(invocation, settings):
        code = _onboard(invocation)
        if code != Exit.DONE:
            return code
        settings = invocation.settings()
    return show(invocation, settings, invocation.profile(settings))


def _is_newcomer(invocation: Invocation, settings: "Settings") -> bool:
    """Whether nothing is configured or asked for, and a terminal is there to answer questions on."""
    asked = invocation.profile_name or settings.default_profile or invocation.token_stream
    return not settings.profiles and not asked and sys.stdin.isatty() and sys.stdout.isatty()


def _onboard(invocation: Invocation) -> int:
    from app.config import config_path
    from app.console.onboarding.screen import run_onboarding

    return run_onboarding(config_path(invocation.config_file, os.environ))


def show(invocation: Invocation, settings: "Settings", profile: "Profile") -> int:
    """Open the console on a terminal, else print a snapshot; return the exit code."""
    if _has_screen():
        from app.console import run_console

        if invocation.verbose and invocation.log_file is None:
            raise failed("usage", "--verbose needs --log-file FILE here: the screen is taken.")
        invocation.begin_log()
        return run_console(settings, profile)
    return invocation.run(lambda: _print_snapshot(invocation.output, settings, profile))


def _has_screen() -> bool:
    if is_in_browser(os.environ):
        end_with_server()
        return True
    return sys.stdin.isatty() and sys.stdout.isatty()


async def _print_snapshot(output: Output, settings: "Settings", profile: "Profile") -> int:
    from app.engine import Engine

    async with await Engine.open(settings, profile, actor="cli") as engine:
        if engine.token_problem is not None:
            raise engine.token_problem
        problem = await engine.refresh()
        for line in await _snapshot(engine, output.width):
            output.text(line)
    if problem is not None:
        raise CommandFailedError(of_api_error(problem, hint="The rows above are from the cache."))
    return Exit.DONE


async def _snapshot(engine: "Engine", width: int | None) -> list[str]:
    """The state of the cache as lines within `width` cells: freshness, counts, code hosts and the newest runs."""
    # Only for the snapshot: the console opens without these.
    from app.cli.output.run_documents import COLUMNS, views
    from app.cli.output.table import Table
    from storage.records import RunFilter

    now = engine.clock()
    cache = engine.cache
    runs = await cache.runs(RunFilter(), limit=_MOST_RUNS)
    total = await cache.count(RunFilter())
    counts = await cache.status_counts(RunFilter())
    failed = (await cache.status_counts(RunFilter(since=now + await cache.run_clock_ahead() - _DAY))).get("failed", 0)
    shown = await views(engine, runs)
    links = await cache.links()
    head = [
        f"runwarden  {engine.profile.name}  {engine.profile.base_url}",
        _freshness(links, now),
        f"{counts.get('working', 0)} working  {counts.get('queued', 0)} queued  {failed} failed/24h",
        *_hosts(await cache.health(), links, now),
        "",
    ]
    if not shown:
        was_asked = any(link.subject == "runs" and link.last_ok_at for link in links)
        return [*head, _START_ONE if was_asked else "No runs were seen yet."]
    table = Table(COLUMNS, width, colour=False).lines(shown)
    rest = [f"… and {total - len(shown)} more: runwarden runs list"] if total > len(shown) else []
    return [*head, *table, *rest]


def _freshness(links: Sequence["LinkState"], now: datetime) -> str:
    link = next((each for each in links if each.subject == "runs"), None)
    if link is None or (link.last_ok_at is None and not link.is_failing):
        return "not synced yet"
    seen = f"last seen {exact_ago(link.last_ok_at, now)}" if link.last_ok_at else "never seen"
    if link.is_failing:
        return f"stale since {rfc3339(link.failing_since)}, {seen}: {link.error_message or link.error_kind}"
    return f"live  {rfc3339(link.last_ok_at)}"


def _hosts(platforms: Sequence["PlatformHealth"], links: Sequence["LinkState"], now: datetime) -> Iterator[str]:
    connected = [each for each in platforms if each.connected]
    if not connected:
        was_asked = any(link.subject == "health" and link.last_ok_at for link in links)
        yield "no code host is connected" if was_asked else "code hosts: not seen yet"
    for each in connected:
        place = " ".join(part for part in (each.host, each.group) if part)
        yield f"{each.platform} {each.status} since {exact_ago(each.since, now)}{f'  {place}' if place else ''}"


@click.command(cls=ScreenCommand, short_help="Try it: a service, repositories, runs and the console.")
@click.option("--no-console", is_flag=True, help="Run the service in the foreground; print one JSON line first.")
@click.option("--keep", is_flag=True, help="Keep all files at the end, and print how to come back.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Create all files in this folder, or take up a kept one.",
)
@click.pass_obj
def demo(invocation: Invocation, /, *, no_console: bool, keep: bool, folder: Path | None) -> int:
    """Start a service with repositories, agents and runs, and open the console on it."""
    require_extra("service")
    from app.demo import run_demo
    from app.demo.service_process import DemoError

    try:
        return run_demo(None if no_console else partial(show, invocation), keep=keep, folder=folder)
    except DemoError as error:
        for line in error.log:
            invocation.output.note(line)
        heading = " Its last words stand above." if error.log else ""
        raise failed("demo", f"{error}{heading}", log=list(error.log)) from error
