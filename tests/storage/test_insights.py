"""Statistics of many runs; a run's duration is the sum of its turns, without the time between them."""

from datetime import timedelta

import pytest

from storage.cache.cache import Cache
from storage.records import Run, RunFilter, RunSort, WorkTime
from tests.storage.conftest import NOON, make_run
from tests.waiting import present


async def test_outcomes_are_counted_in_half_open_intervals(cache: Cache) -> None:
    """A run created at an edge belongs to the later interval; unknown statuses count as unfinished."""
    statuses = ("completed", "completed", "failed", "working", "paused")
    for number, status in enumerate(statuses):
        await cache.store_runs([make_run(number, status, created_at=NOON)], asked_at=NOON)
    await cache.store_runs([make_run(9, "failed", created_at=NOON + timedelta(hours=1))], asked_at=NOON)

    first, second = await cache.outcomes([NOON + timedelta(hours=n) for n in range(3)])

    assert (first.completed, first.failed, first.unfinished, first.total) == (2, 1, 2, 5)
    assert (second.completed, second.failed, second.unfinished) == (0, 1, 0)
    assert (first.start, first.end, second.end) == (NOON, second.start, NOON + timedelta(hours=2))


async def test_percentiles_are_durations_of_real_runs(cache: Cache) -> None:
    """The nearest rank is used, the busiest repository comes first, and older runs are excluded."""
    took = (60, 10, 20, 30, 40, 50)
    runs = [
        make_run(seconds, "completed" if seconds != 20 else "failed", updated_at=NOON + timedelta(seconds=seconds))
        for seconds in took
    ]
    await cache.store_runs([*runs, make_run(99, "working")], asked_at=NOON)

    old, hour = NOON - timedelta(days=1), timedelta(hours=1)
    others = [make_run(81, "completed", repository="acme/quiet"), make_run(82, "failed", created_at=old)]
    others += [make_run(n, "failed", created_at=old, repository="acme/gone") for n in range(83, 93)]
    await cache.store_runs(others, asked_at=NOON + hour)

    figures, quiet = await cache.repository_figures(NOON)

    assert (figures.repository, figures.total, quiet.repository, quiet.total) == ("acme/api", 7, "acme/quiet", 1)
    assert (figures.p50_s, figures.p95_s, figures.timed) == (30.0, 60.0, 6)
    assert (figures.completed, figures.failed, figures.unfinished) == (5, 1, 1)
    assert figures.success == pytest.approx(5 / 6)


MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


async def seen(cache: Cache, *runs: Run) -> None:
    """Let the service show these runs at the time of their newest change."""
    await cache.store_runs(runs, asked_at=max(run.updated_at for run in runs if run.updated_at))


async def took(cache: Cache, run_id: str = "run_0001") -> WorkTime:
    """The run's duration, which is the same in the table and the detail."""
    detail = present(await cache.detail(run_id))
    rows = await cache.rows(RunFilter(), RunSort(), offset=0, limit=9)
    assert [detail.took] == [row.took for row in rows if row.run_id == run_id]
    return detail.took


async def test_time_between_turns_is_not_work(cache: Cache) -> None:
    """No figure counts it. An unobserved turn adds nothing, since its duration is unknown."""
    await seen(cache, make_run(1, "completed", updated_at=NOON + 10 * MINUTE))
    assert await took(cache) == WorkTime(seconds=600)

    await seen(cache, make_run(1, "working", updated_at=NOON + DAY))
    going = await took(cache)
    assert going.until(NOON + DAY + 2 * MINUTE) == 12 * 60

    await seen(cache, make_run(1, "completed", updated_at=NOON + DAY + 5 * MINUTE))
    assert await took(cache) == WorkTime(seconds=900)
    detail = present(await cache.detail("run_0001"))
    assert detail.turns == 2

    await seen(cache, make_run(2))
    await cache.pin("run_0002", NOON)
    (pinned,) = await cache.pins()
    (figures,) = await cache.repository_figures(NOON - DAY)
    durations = present(pinned.durations)
    assert durations.median_s == durations.p95_s == figures.p50_s == figures.p95_s == 900

    await seen(cache, make_run(3, "completed", updated_at=NOON + 10 * MINUTE))
    await seen(cache, make_run(3, "failed", updated_at=NOON + DAY))
    assert await took(cache, "run_0003") == WorkTime(seconds=600)
