"""The Health tab's data: hosts and our link, now and over time, active runs, and failed runs of incidents."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from app.console.health.rows import LONGEST_WINDOW, NOTHING_SEEN, Failed, PlatformHistory, Reader, recent_incidents
from app.console.leads import of_platform
from app.health import Incident
from storage.cache import Cache
from storage.records import ACTIVE_STATUSES, LinkState, PlatformHealth
from storage.records.activity import ActivityFilter, PollSpan
from widgets.health import MOST, MOST_POLLS

LINK_POLLS: Final = 2_000
"""The newest stretches of polls that make up the link's past."""
SETTLED: Final = timedelta(hours=1)
"""This long after an incident its failed runs are not counted again."""


@dataclass(frozen=True, slots=True)
class HealthView:
    """All data, as read at one time."""

    hosts: tuple[PlatformHealth, ...] = ()
    links: tuple[LinkState, ...] = ()
    pasts: dict[str, PlatformHistory] = field(default_factory=dict)
    """By platform."""
    link_past: PlatformHistory = NOTHING_SEEN
    under_way: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Active runs by platform and status."""
    incidents: tuple[Incident, ...] = ()
    """Most urgent first."""
    failed: Failed = field(default_factory=dict)
    polls: tuple[PollSpan, ...] = ()
    """Newest first."""
    statuses: tuple[str, ...] = ()
    """All statuses ever seen."""


async def read_health(cache: Cache, reader: Reader, now: datetime, ahead: timedelta, before: HealthView) -> HealthView:
    """Read the data; the runs' clock is `ahead` of ours. Figures in `before` of incidents long over are kept.

    Raises:
        StorageError: The cache cannot be read.
    """
    since = now - LONGEST_WINDOW
    # Disconnected hosts come last.
    hosts = tuple(sorted(await cache.health(), key=lambda host: not host.connected))
    pasts = reader.pasts(hosts, await cache.health_spans(since, longest_gap=reader.longest_gap), now)
    incidents = recent_incidents(pasts, since)
    failed: dict[tuple[str, datetime], tuple[int, datetime | None]] = {}
    for one in incidents[:MOST]:
        key, end = (one.platform, one.start), one.recovered_at or one.until
        if key in before.failed and one in before.incidents and end < now - SETTLED:
            failed[key] = before.failed[key]
        else:
            failed[key] = await cache.failed_between(of_platform(one.platform), one.start + ahead, end + ahead)
    polls = await cache.polls(ActivityFilter(kinds=("poll.runs",), since=since), limit=LINK_POLLS)
    return HealthView(
        hosts,
        await cache.links(),
        pasts,
        reader.link_past(polls.newest, now),
        {host.platform: await _under_way(cache, host.platform) for host in hosts if host.connected},
        incidents,
        failed,
        (await cache.polls(ActivityFilter(), limit=MOST_POLLS)).newest,
        await cache.known_statuses(),
    )


async def _under_way(cache: Cache, platform: str) -> dict[str, int]:
    wanted = of_platform(platform)
    return {status: await cache.count(replace(wanted, statuses=(status,))) for status in reversed(ACTIVE_STATUSES)}
