"""The console's first screen as text, where there is no terminal."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from app.cli.documents import COLUMNS, views
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.output import Output, Table
from app.config import Profile, Settings
from app.engine import Engine
from app.times import exact_ago, rfc3339
from storage.records import LinkState, PlatformHealth, RunFilter

_MOST_RUNS: Final = 20
"""Runs in a snapshot."""
_DAY: Final = timedelta(days=1)
_START_ONE: Final = "No runs yet. Start one: runwarden runs start -R owner/repo INSTRUCTIONS"


async def print_snapshot(output: Output, settings: Settings, profile: Profile) -> int:
    """Ask the service once and print the snapshot; return the exit code.

    Raises:
        TokenError: There is no usable token.
        CommandFailedError: The service could not be asked; the cached rows are printed.
    """
    async with await Engine.open(settings, profile, actor="cli") as engine:
        if engine.token_problem is not None:
            raise engine.token_problem
        problem = await engine.refresh()
        for line in await _snapshot(engine, output.width):
            output.text(line)
    if problem is not None:
        raise CommandFailedError(of_api_error(problem, hint="The rows above are from the cache."))
    return Exit.DONE


async def _snapshot(engine: Engine, width: int | None) -> list[str]:
    """The state of the cache as lines within `width` cells: freshness, counts, code hosts and the newest runs."""
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


def _freshness(links: Sequence[LinkState], now: datetime) -> str:
    link = next((each for each in links if each.subject == "runs"), None)
    if link is None or (link.last_ok_at is None and not link.is_failing):
        return "not synced yet"
    seen = f"last seen {exact_ago(link.last_ok_at, now)}" if link.last_ok_at else "never seen"
    if link.is_failing:
        return f"stale since {rfc3339(link.failing_since)}, {seen}: {link.error_message or link.error_kind}"
    return f"live  {rfc3339(link.last_ok_at)}"


def _hosts(platforms: Sequence[PlatformHealth], links: Sequence[LinkState], now: datetime) -> Iterator[str]:
    connected = [each for each in platforms if each.connected]
    if not connected:
        was_asked = any(link.subject == "health" and link.last_ok_at for link in links)
        yield "no code host is connected" if was_asked else "code hosts: not seen yet"
    for each in connected:
        location = " ".join(part for part in (each.host, each.group) if part)
        yield f"{each.platform} {each.status} since {exact_ago(each.since, now)}{f'  {location}' if location else ''}"
