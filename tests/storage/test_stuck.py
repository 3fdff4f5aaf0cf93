"""Stuck runs are compared with their own repository's past, by observed time, and without flicker."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from storage.cache.cache import Cache
from storage.records import Run, RunFilter, RunSort, WindowRequest
from tests.storage.conftest import NOON, make_run

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def seen(cache: Cache, at: datetime, *runs: Run, since: datetime | None = None) -> frozenset[str]:
    """Let polls show these runs every quarter of an hour; return the stuck runs after the last poll."""
    poll_at = at if since is None else since
    while poll_at <= at:
        await cache.store_runs(runs, asked_at=poll_at)
        await cache.judge_stuck()
        poll_at = at if poll_at < at < poll_at + 15 * MINUTE else poll_at + 15 * MINUTE
    return await cache.stuck()


@pytest.mark.parametrize(
    ("took_min", "waited_min", "is_stuck"),
    [
        ([1] * 20, 29, False),
        ([20] * 20, 41, True),
        # If two of twenty take 40 minutes, the limit is twice that.
        ([1] * 18 + [40] * 2, 79, False),
        ([1] * 18 + [40] * 2, 81, True),
    ],
)
async def test_a_run_is_stuck_beyond_twice_its_repositorys_p95(
    cache: Cache, took_min: list[int], waited_min: int, *, is_stuck: bool
) -> None:
    """The limit is at least half an hour; other repositories' runs do not count."""
    start = NOON - 9 * HOUR
    finished = [
        make_run(n, "completed", created_at=start, updated_at=start + took * MINUTE) for n, took in enumerate(took_min)
    ]
    slow_elsewhere = make_run(50, "failed", repository="acme/slow", created_at=start, updated_at=NOON)
    await cache.store_runs([*finished, slow_elsewhere], asked_at=NOON)

    found = await seen(cache, NOON + waited_min * MINUTE, make_run(60, "working"), since=NOON)

    assert found == ({"run_0060"} if is_stuck else set())


@pytest.mark.parametrize(("gap", "continued"), [(21 * MINUTE, False), (26 * HOUR, True)])
async def test_unobserved_time_makes_nothing_stuck(cache: Cache, gap: timedelta, *, continued: bool) -> None:
    """Only time during which polls saw the run active counts, not the time before the first poll."""
    again = NOON + 10 * MINUTE + gap
    run = make_run(1, created_at=NOON - 9 * HOUR)
    later = replace(run, updated_at=again - MINUTE) if continued else run

    assert await seen(cache, NOON + 10 * MINUTE, run, since=NOON) == set()
    assert await seen(cache, again, later) == set()
    assert await seen(cache, again + 29 * MINUTE, later, since=again + MINUTE) == set()
    assert await seen(cache, again + 31 * MINUTE, later) == {"run_0001"}


@pytest.mark.parametrize("ahead", [-3 * HOUR, 3 * HOUR])
async def test_a_service_whose_clock_is_hours_off_makes_nothing_stuck_or_free(cache: Cache, ahead: timedelta) -> None:
    """A run's active time is measured with one clock, the service's."""
    await cache.change_budget(lambda state: replace(state, clock_ahead_s=ahead.total_seconds()))
    run = make_run(1, created_at=NOON + ahead)

    assert await seen(cache, NOON + 10 * MINUTE, run, since=NOON) == set()
    assert await seen(cache, NOON + 31 * MINUTE, run, since=NOON + 25 * MINUTE) == {"run_0001"}


async def test_a_continued_run_is_timed_from_its_new_turn(cache: Cache) -> None:
    """A run from last month that was continued a minute ago is not stuck."""
    old = make_run(1, "completed", created_at=NOON - 900 * HOUR, updated_at=NOON - 899 * HOUR)
    # After an hour's work the limit is two hours.
    await cache.store_runs([old], asked_at=NOON)
    turn = make_run(1, "working", created_at=old.created_at, updated_at=NOON)

    assert await seen(cache, NOON + 29 * MINUTE, turn, since=NOON) == set()
    assert await seen(cache, NOON + 31 * MINUTE, turn) == {"run_0001"}

    done = make_run(1, "completed", created_at=old.created_at, updated_at=NOON + HOUR)
    await cache.store_runs([done], asked_at=NOON + HOUR)
    again = make_run(1, "working", created_at=old.created_at, updated_at=NOON + 2 * HOUR)
    assert await seen(cache, NOON + 2 * HOUR + 29 * MINUTE, again, since=NOON + 2 * HOUR) == set()
    assert await seen(cache, NOON + 2 * HOUR + 31 * MINUTE, again) == {"run_0001"}
    (stuck,) = await cache.stuck_runs()
    assert (stuck.active_since, stuck.last_seen_at) == (NOON + 2 * HOUR, NOON + 2 * HOUR + 31 * MINUTE)


async def test_stuck_runs_are_reported_once(cache: Cache) -> None:
    """A run out of sight, or ended, is no longer stuck, since its work is unknown. Until then, a filter finds them."""
    others = (make_run(3, "completed"), make_run(4, created_at=NOON + 50 * MINUTE))
    assert await seen(cache, NOON + HOUR, make_run(1), make_run(2, "queued"), since=NOON) == {"run_0001", "run_0002"}
    await cache.store_runs(others, asked_at=NOON + HOUR)
    stuck = RunFilter(stuck=True)
    rows = await cache.rows(stuck, RunSort("run", descending=False), offset=0, limit=9)
    assert [row.run_id for row in rows] == ["run_0001", "run_0002"]
    assert await cache.count(stuck) == 2
    assert await cache.status_counts(stuck) == {"working": 1, "queued": 1}
    assert (await cache.window(WindowRequest(stuck, RunSort(), 0, 9, cursor_id="run_0004"))).cursor_index is None
    assert await cache.judge_stuck() == set()
    await cache.set_presence(["run_0001"], "unconfirmed")
    await cache.store_runs([make_run(2, "failed", updated_at=NOON + HOUR)], asked_at=NOON + HOUR)

    assert await cache.judge_stuck() == {"run_0001", "run_0002"}
    assert await cache.judge_stuck() == set()
    assert await cache.stuck() == set()
