"""How long runs took: their turns count, and the time between them does not."""

from datetime import timedelta

from storage.cache.cache import Cache
from storage.records import Run, RunFilter, RunSort, WorkTime
from tests.storage.conftest import NOON, make_run
from tests.waiting import present

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


async def seen(cache: Cache, *runs: Run) -> None:
    """The service shows these runs at the time of the newest change in them."""
    await cache.store_runs(runs, asked_at=max(run.updated_at for run in runs if run.updated_at))


async def took(cache: Cache, run_id: str = "run_0001") -> WorkTime:
    """As its line in the table and its detail agree on."""
    detail = present(await cache.detail(run_id))
    rows = await cache.rows(RunFilter(), RunSort(), offset=0, limit=9)
    assert [detail.took] == [row.took for row in rows if row.run_id == run_id]
    return detail.took


async def test_a_day_of_rest_between_two_turns_is_no_work(cache: Cache) -> None:
    """A run of ten minutes that is continued a day later and ends after five more took fifteen.

    The median that pins and stuck runs are held against, and that of Insights, are of what runs took. Of a run that
    was continued and ended between two polls it is not known how long it worked: the rest is not counted as work.
    """
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
    await cache.following.pin("run_0002", NOON)
    (pinned,) = await cache.following.pins()
    (figures,) = await cache.repository_figures(NOON - DAY)
    durations = present(pinned.durations)
    assert durations.median_s == durations.p95_s == figures.p50_s == figures.p95_s == 900

    await seen(cache, make_run(3, "completed", updated_at=NOON + 10 * MINUTE))
    await seen(cache, make_run(3, "failed", updated_at=NOON + DAY))
    assert await took(cache, "run_0003") == WorkTime(seconds=600)
