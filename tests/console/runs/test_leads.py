"""Links to runs open a query that finds exactly the runs in question."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec.structs import replace

from app.health.incidents import IncidentReader
from app.health.screen import HealthView, read_health
from app.runs.query import parse
from app.runs.screen_views import of_platform, runs_lead
from storage.cache.cache import Cache
from storage.records import HealthSample, Repository, Run
from storage.records.insights import FailedRuns

NOON = datetime(2026, 5, 1, 12, 0, 30, 5, tzinfo=UTC)


def test_a_platform_opens_its_runs_only() -> None:
    """The query excludes the end of its period, and no second is lost."""
    for platform in ("github", "gitlab"):
        lead = runs_lead(of_platform(platform), NOON, NOON + timedelta(minutes=5))
        found = parse(lead.target or "", NOON)

        assert (lead.name, found.problems) == ("runs", ())
        assert replace(found.filter, since=None, until=None) == of_platform(platform)
        assert found.filter.since == NOON.replace(microsecond=0)
        assert found.filter.until == datetime(2026, 5, 1, 12, 5, 30, 999_999, tzinfo=UTC)


async def test_an_incident_counts_its_platforms_failures(tmp_path: Path) -> None:
    """Runs count by when they ended, not by their creation, and only on the incident's platform.

    It may have begun any time after the last good poll, so a failure shortly before the first bad poll counts.
    """
    ended = (
        *(("failed", "gitlab:acme/tools", 25), ("failed", "gitlab:acme/tools", 5)),
        *(("completed", "gitlab:acme/tools", 25), ("failed", "acme/api", 25)),
        *(("failed", "gitlab:acme/tools", 30.25), ("failed", "gitlab:acme/tools", 31)),
    )
    created = NOON - timedelta(minutes=40)
    runs = [
        Run(f"r{n}", status, "main", Repository.parse(label), created, NOON - timedelta(minutes=minutes), "{}")
        for n, (status, label, minutes) in enumerate(ended)
    ]
    async with await Cache.open(tmp_path / "cache.sqlite3") as cache:
        for status, minutes in (("ok", 60), ("unreachable", 30), ("unreachable", 21), ("ok", 20), ("ok", 1)):
            sample = HealthSample("gitlab", status, None, None, "{}")
            await cache.store_health((sample,), at=NOON - timedelta(minutes=minutes))
        await cache.store_runs(runs, asked_at=NOON)
        reader = IncidentReader(cache, {"ok"}, 30, timedelta(minutes=2))
        view = await read_health(reader, NOON, timedelta(0), HealthView())

    (incident,) = view.incidents
    assert view.failed == {("gitlab", incident.start): FailedRuns(2, created)}
