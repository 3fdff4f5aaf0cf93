"""What is dropped from the cache, and what a person loses by it: nothing that is theirs."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.engine.events import Event, RunsChanged
from app.profiles import HistorySettings
from app.sync.retention import Retention
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import RunFilter, RunSort
from tests.storage.conftest import make_run

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[Cache]:
    """A run a day for 30 days."""
    async with await Cache.open(tmp_path / "cache.sqlite3") as opened:
        runs = [make_run(n, "completed", created_at=NOON - n * DAY, note="x" * 2000) for n in range(30)]
        await opened.store_runs(runs, NOON)
        yield opened


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    """A run of 25 days ago was continued from here."""
    async with await Ledger.open(tmp_path / "ledger.sqlite3") as opened:
        await opened.prepare(
            action_id=None, kind="run.continue", subject="run_0025", key="k", path="/", body_json="{}", actor="cli:ann"
        )
        yield opened


async def kept(cache: Cache, ledger: Ledger, heard: list[Event], **limits: float) -> list[int]:
    history = HistorySettings(**{"keep_days": 0, "max_mb": 0, **limits})
    await Retention(cache, ledger, heard.append, history, lambda: NOON).work()
    rows = await cache.rows(RunFilter(), RunSort(), offset=0, limit=99)
    return [int(row.run_id[-4:]) for row in rows]


async def test_runs_of_an_age_are_dropped_but_for_those_in_the_ledger(cache: Cache, ledger: Ledger) -> None:
    """Every console hears of it."""
    heard: list[Event] = []

    assert await kept(cache, ledger, heard, keep_days=9.5) == [*range(10), 25]

    assert [type(event) for event in heard] == [RunsChanged]


async def test_without_limits_nothing_is_dropped(cache: Cache, ledger: Ledger) -> None:
    """And nothing is told."""
    heard: list[Event] = []

    assert await kept(cache, ledger, heard) == [*range(30)]

    assert heard == []


async def test_a_cache_too_large_is_dropped_until_it_fits(
    cache: Cache, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first, a few at a time; where what is left must stay, it stays."""
    monkeypatch.setattr("storage.cache.retention.STEP", 5)
    monkeypatch.setattr("app.sync.retention._MEGABYTE", await cache.used_bytes() - 20_000)

    left = await kept(cache, ledger, [], max_mb=1)
    assert left in ([*range(n), 25] for n in range(8, 25))

    monkeypatch.setattr("app.sync.retention._MEGABYTE", 1)
    assert await kept(cache, ledger, [], max_mb=1) == [25]
