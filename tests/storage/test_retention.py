"""Retention drops the oldest runs, and no longer claims them."""

from datetime import timedelta

import pytest

from storage.cache import retention
from storage.cache.cache import Cache
from storage.records import CoverageGap, Run, RunFilter
from tests.storage.conftest import NOON, make_run

HOUR = timedelta(hours=1)


def ended(number: int, status: str = "completed") -> Run:
    """A run that began this many hours before noon."""
    return make_run(number, status, created_at=NOON - number * HOUR, updated_at=NOON, repository=f"acme/{number % 3}")


async def held(cache: Cache) -> list[str]:
    return sorted(await cache.details([f"run_{n:04}" for n in range(20)]))


@pytest.fixture
async def filled(cache: Cache) -> Cache:
    """Ten runs, one an hour, in a complete history."""
    await cache.store_runs([ended(number) for number in range(10)], NOON)
    await cache.extend_coverage(None, NOON, NOON)
    return cache


async def test_the_oldest_runs_are_dropped_first(filled: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything stored about them is dropped, and the complete period begins after the newest dropped run."""
    monkeypatch.setattr(retention, "STEP", 4)

    assert await filled.drop_oldest(None, ()) == 4

    assert await held(filled) == [f"run_{n:04}" for n in range(6)]
    assert await filled.status_counts(RunFilter()) == {"completed": 6}
    coverage = await filled.coverage()
    assert (coverage.whole, coverage.complete_since) == (False, NOON - 6 * HOUR + timedelta(microseconds=1))
    assert coverage.gaps == (CoverageGap(None, coverage.complete_since),)
    assert (await filled.history(NOON)).dropped_until == NOON - 6 * HOUR


async def test_only_runs_beyond_the_age_are_dropped(filled: Cache) -> None:
    """A range that ends before that age disappears. A new run after a drop is news, whatever its number."""
    before = await filled.changes(await filled.watermark(), NOON)
    assert await filled.drop_oldest(NOON - 5 * HOUR, ()) == 4
    assert await filled.drop_oldest(NOON - 5 * HOUR, ()) == 0
    assert await filled.drop_oldest(NOON + HOUR, ()) == 6

    assert (await filled.coverage()).ranges == ()
    assert await filled.repositories() == ()
    await filled.store_runs([make_run(11, "failed")], NOON)
    found = await filled.changes(before.watermark, NOON)
    assert [change.run_id for change in found.changes] == ["run_0011"]


async def test_active_followed_and_recorded_runs_stay(filled: Cache) -> None:
    """Their age does not matter; an active run that the service no longer shows is dropped like an ended one."""
    await filled.store_runs([ended(11, "working"), ended(12, "paused"), ended(13, "queued")], NOON)
    await filled.set_presence(["run_0013"], "lost")
    await filled.pin("run_0009", NOON)

    assert await filled.drop_oldest(None, ["run_0008", "run_x"]) == 9

    assert await held(filled) == ["run_0008", "run_0009", "run_0011", "run_0012"]


async def test_runs_without_a_time_are_dropped_first(cache: Cache) -> None:
    """Such runs are dropped first if space is needed.

    Dropping frees space at once, although the file keeps its size.
    """
    await cache.store_runs([make_run(1, "failed", created_at=None), ended(2)], NOON)
    await cache.extend_coverage(None, NOON, NOON)

    assert await cache.drop_oldest(NOON - HOUR, ()) == 1
    assert await held(cache) == ["run_0001"]

    await cache.store_runs([ended(2)], NOON)
    await cache.extend_coverage(None, NOON, NOON)
    assert await cache.drop_oldest(None, ["run_0002"]) == 1
    assert not (await cache.coverage()).whole

    await cache.store_runs([make_run(n, "completed", note="x" * 3000) for n in range(300)], NOON)
    before = await cache.used_bytes()
    await cache.drop_oldest(None, ())
    assert await cache.used_bytes() < before / 3
