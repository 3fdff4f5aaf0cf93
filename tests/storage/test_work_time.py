"""How long runs took: their turns count, and the time between them does not."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from storage.cache.cache import Cache
from storage.cache.work_time import TurnTimes
from storage.records import Run, RunFilter, RunSort, WorkTime
from storage.values import to_sortable_us, to_us
from tests.storage.conftest import NOON, connected, make_run

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


async def seen(cache: Cache, *runs: Run) -> None:
    """The service shows these runs at the time of the newest change in them."""
    await cache.store_runs(runs, asked_at=max(run.updated_at for run in runs if run.updated_at))


async def took(cache: Cache, run_id: str = "run_0001") -> WorkTime:
    """As its line in the table and its detail agree on."""
    detail = await cache.detail(run_id)
    rows = await cache.rows(RunFilter(), RunSort(), offset=0, limit=9)
    assert detail is not None
    assert [detail.took] == [row.took for row in rows if row.run_id == run_id]
    return detail.took


async def test_a_day_of_rest_between_two_turns_is_no_work(cache: Cache) -> None:
    """A run of ten minutes that is continued a day later and ends after five more took fifteen."""
    await seen(cache, make_run(1, "completed", updated_at=NOON + 10 * MINUTE))
    assert await took(cache) == WorkTime(seconds=600)

    await seen(cache, make_run(1, "working", updated_at=NOON + DAY))
    going = await took(cache)
    assert going.until(NOON + DAY + 2 * MINUTE) == 12 * 60

    await seen(cache, make_run(1, "completed", updated_at=NOON + DAY + 5 * MINUTE))
    assert await took(cache) == WorkTime(seconds=900)
    detail = await cache.detail("run_0001")
    assert detail is not None
    assert detail.turns == 2


async def test_all_figures_count_the_same_time(cache: Cache) -> None:
    """The median that pins and stuck runs are held against, and that of Insights, are of what runs took."""
    await seen(cache, make_run(1, "completed", updated_at=NOON + 10 * MINUTE))
    await seen(cache, make_run(1, "working", updated_at=NOON + DAY))
    await seen(cache, make_run(1, "completed", updated_at=NOON + DAY + 5 * MINUTE), make_run(2))
    await cache.following.pin("run_0002", NOON)

    (pinned,) = await cache.following.pins()
    (figures,) = await cache.repository_figures(NOON - DAY)

    assert pinned.durations is not None
    assert pinned.durations.median_s == pinned.durations.p95_s == figures.p50_s == figures.p95_s == 900


async def test_a_turn_that_was_not_seen_adds_nothing(cache: Cache) -> None:
    """Continued and ended between two polls: how long it worked is not known, and the rest is not counted as work."""
    await seen(cache, make_run(1, "completed", updated_at=NOON + 10 * MINUTE))
    await seen(cache, make_run(1, "failed", updated_at=NOON + DAY))

    assert await took(cache) == WorkTime(seconds=600)


@pytest.mark.parametrize("status", ["working", "completed"])
@pytest.mark.parametrize("created_at", [None, NOON])
@pytest.mark.parametrize("updated_at", [None, NOON - MINUTE, NOON + MINUTE])
def test_a_first_turn_is_the_same_in_sql(
    tmp_path: Path, status: str, created_at: datetime | None, updated_at: datetime | None
) -> None:
    """Runs that are new are counted where they are inserted, many at a time."""
    run = make_run(1, status, created_at=created_at, updated_at=updated_at)
    created_us, updated_us = to_sortable_us(created_at), to_sortable_us(updated_at)
    with connected(tmp_path, [run]) as (writer, _):
        held = writer.execute("SELECT active_since_us, worked_us, took_us FROM runs").fetchone()

    assert held == TurnTimes.first(created_us, updated_us, to_us(NOON), is_final=status == "completed")
