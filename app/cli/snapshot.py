"""The console's first screen as text, for output that is not a terminal."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from app.cli.exits import Exit, of_api_error
from app.cli.output import Output, Table
from app.engine.engine import Engine
from app.engine.times import exact_ago, rfc3339
from app.health.command import LEVELS
from app.health.facts import level as level_of
from app.health.facts import unobserved_since
from app.profiles import Profile, Settings
from app.runs.command_rows import COLUMNS, run_documents
from storage.records import LinkState, PlatformHealth, RunFilter, link_of

_MAX_RUNS: Final = 20
_DAY: Final = timedelta(days=1)


async def print_snapshot(output: Output, settings: Settings, profile: Profile) -> int:
    """Ask the service once and print the snapshot, from the cache if the service fails; return the exit code."""
    async with await Engine.open(settings, profile, actor="cli") as engine:
        if engine.token_problem is not None:
            raise engine.token_problem
        problem = await engine.refresh()
        for line in await lines_of(engine, output.width):
            output.text(line)
    if problem is not None:
        raise of_api_error(problem, hint="The rows above are from the cache.")
    return Exit.DONE


async def lines_of(engine: Engine, width: int | None) -> list[str]:
    """The state of the cache as lines within `width` cells: freshness, counts, code hosts and the newest runs."""
    now = engine.clock()
    cache = engine.cache
    runs = await cache.runs(RunFilter(), limit=_MAX_RUNS)
    total = await cache.count(RunFilter())
    figures = await cache.figures(now + engine.budget.clock_ahead - _DAY)
    working, queued = (figures.runs.get(status, 0) for status in ("working", "queued"))
    rows = await run_documents(engine, runs)
    link = link_of(figures.links, "runs")
    hosts = list(_host_lines(figures.links, figures.health, engine.settings.console.health_ok, now))
    if not hosts:
        health = link_of(figures.links, "health")
        was_answered = health is not None and health.last_ok_at is not None
        hosts = ["no code host is connected" if was_answered else "code hosts: not seen yet"]
    head = [
        f"runwarden  {engine.profile.name}  {engine.profile.base_url}",
        _freshness(link, now),
        f"{working} working  {queued} queued  {figures.failed_lately} failed/24h",
        *hosts,
    ]
    if link is not None and link.dropped:
        head.append(f"{link.dropped} entries of the list have no usable run id")
    head.append("")
    if not rows and link is not None and link.last_ok_at is not None:
        return [*head, "No runs yet. Start one: runwarden runs start -R owner/repo INSTRUCTIONS"]
    if not rows:
        return [*head, "No runs yet."]
    table = Table(COLUMNS, width).lines(rows)
    more = [f"… and {total - len(rows)} more: runwarden runs list"] if total > len(rows) else []
    return [*head, *table, *more]


def _freshness(link: LinkState | None, now: datetime) -> str:
    if link is not None and link.is_failing:
        seen = "never seen"
        if link.last_ok_at:
            seen = f"last seen {exact_ago(link.last_ok_at, now)}"
        return f"stale since {rfc3339(link.failing_since)}, {seen}: {link.error_message or link.error_kind}"
    if link is not None and link.last_ok_at is not None:
        return f"live  {rfc3339(link.last_ok_at)}"
    return "not synced yet"


def _host_lines(
    links: Sequence[LinkState], hosts: Iterable[PlatformHealth], healthy_words: Collection[str], now: datetime
) -> Iterator[str]:
    """One line for each connected host, and one before them if their health cannot be read."""
    is_read = not any(state.subject == "health" and state.is_failing for state in links)
    if unobserved := unobserved_since(links, now):
        yield f"code hosts unobserved since {rfc3339(unobserved)}"
    for host in hosts:
        if host.connected:
            place = " ".join(part for part in (host.host, host.group) if part)
            seen = f"when last seen, {exact_ago(host.checked_at, now)}"
            since = f"since {exact_ago(host.since, now)}" if is_read else seen
            level = LEVELS[level_of(host.status, healthy_words)]
            parts = (f"{host.platform} {host.status} {since}", place, level.name.lower() if level and is_read else "")
            yield "  ".join(filter(None, parts))
