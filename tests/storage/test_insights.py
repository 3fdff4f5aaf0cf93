"""Figures of many runs, against the same figures counted run by run."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.cache.cache import Cache
from storage.records import FINAL_STATUSES, Run
from tests.storage.conftest import NOON, make_run


def edges_of(start: datetime, step: timedelta, count: int) -> tuple[datetime, ...]:
    """So many stretches, one after the other."""
    return tuple(start + step * number for number in range(count + 1))


def under_way(runs: Sequence[Run], start: datetime, end: datetime, now: datetime) -> float:
    """How many were under way on average, counted run by run."""
    total = timedelta()
    for run in runs:
        assert run.created_at is not None
        assert run.updated_at is not None
        until = run.updated_at if run.status in FINAL_STATUSES else now
        total += max(timedelta(), min(until, end) - max(run.created_at, start))
    return total / (end - start)


async def test_outcomes_are_counted_by_creation_in_half_open_stretches(cache: Cache) -> None:
    """A run created at an edge belongs to what follows it; unknown statuses are unfinished."""
    statuses = ("completed", "completed", "failed", "working", "paused")
    for number, status in enumerate(statuses):
        await cache.store_runs([make_run(number, status, created_at=NOON)], asked_at=NOON)
    await cache.store_runs([make_run(9, "failed", created_at=NOON + timedelta(hours=1))], asked_at=NOON)

    first, second = await cache.outcomes(edges_of(NOON, timedelta(hours=1), 2))

    assert (first.completed, first.failed, first.unfinished, first.total) == (2, 1, 2, 5)
    assert (second.completed, second.failed, second.unfinished) == (0, 1, 0)
    assert (first.start, first.end, second.end) == (NOON, second.start, NOON + timedelta(hours=2))


async def test_percentiles_are_durations_that_some_run_took(cache: Cache) -> None:
    """By the nearest rank; what has not finished has no duration."""
    took = (60, 10, 20, 30, 40, 50)
    runs = [
        make_run(seconds, "completed" if seconds != 20 else "failed", updated_at=NOON + timedelta(seconds=seconds))
        for seconds in took
    ]
    await cache.store_runs([*runs, make_run(99, "working")], asked_at=NOON)

    (figures,) = await cache.repository_figures(NOON)

    assert (figures.p50_s, figures.p95_s, figures.timed) == (30.0, 60.0, 6)
    assert (figures.completed, figures.failed, figures.unfinished) == (5, 1, 1)
    assert figures.success == pytest.approx(5 / 6)


async def test_repositories_come_with_the_busiest_first_and_only_what_is_recent(cache: Cache) -> None:
    """A repository whose runs are all older is left out, and so are the older runs of the others."""
    old = NOON - timedelta(days=1)
    runs = [
        make_run(1, "completed", repository="acme/quiet"),
        make_run(2, "completed", repository="acme/busy"),
        make_run(3, "working", repository="acme/busy"),
        make_run(4, "failed", repository="acme/busy", created_at=old),
        make_run(5, "failed", repository="acme/gone", created_at=old),
    ]
    await cache.store_runs(runs, asked_at=NOON)

    figures = await cache.repository_figures(NOON)

    assert [(each.repository, each.total, each.failed) for each in figures] == [
        ("acme/busy", 2, 0),
        ("acme/quiet", 1, 0),
    ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
async def test_concurrency_is_what_counting_run_by_run_gives(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Whatever began before, ends after, or is still under way."""
    chance = random.Random(seed)
    now = NOON + timedelta(hours=6)
    runs = []
    for number in range(chance.randint(0, 40)):
        created = NOON + timedelta(minutes=chance.randint(-240, 350))
        took = timedelta(minutes=chance.randint(0, 400))
        is_final = created + took <= now
        status = chance.choice(("completed", "failed")) if is_final else chance.choice(("queued", "working", "odd"))
        updated = created + took if is_final else created
        runs.append(make_run(number, status, created_at=created, updated_at=updated))
    edges = edges_of(NOON, timedelta(minutes=45), 8)
    async with await Cache.open(tmp_path_factory.mktemp("figures") / "cache.sqlite3") as cache:
        await cache.store_runs(runs, asked_at=now)

        found = await cache.concurrency(edges)

    expected = [under_way(runs, start, end, now) for start, end in pairwise(edges)]
    assert [each.average for each in found] == pytest.approx(expected, abs=1e-6)


HOUR, AHEAD = timedelta(hours=1), NOON + timedelta(minutes=5)


@pytest.mark.parametrize(
    ("stored", "lost", "start", "averages"),
    [
        # Continued: the time between its turns is not work.
        (
            [
                make_run(1, "completed", updated_at=NOON + timedelta(minutes=5)),
                make_run(1, "queued", updated_at=NOON + 2 * HOUR),
            ],
            [],
            NOON,
            [0.0, 0.0, 1.0],
        ),
        # Lost by the service: neither now nor before, for when it ended is not known.
        ([make_run(1), make_run(2)], ["run_0001"], NOON - HOUR, [0.0, 1.0]),
        # A service's clock that is ahead neither adds to what was before now, nor takes from it.
        (
            [
                make_run(1, "completed", created_at=NOON - timedelta(minutes=30), updated_at=AHEAD),
                make_run(2, "working", created_at=AHEAD, updated_at=AHEAD),
            ],
            [],
            NOON - 2 * HOUR,
            [0.0, 0.5],
        ),
    ],
    ids=["continued", "lost", "clock ahead"],
)
async def test_only_time_at_work_counts(
    cache: Cache, stored: list[Run], lost: list[str], start: datetime, averages: list[float]
) -> None:
    """What a run's facts do not show to be work adds nothing."""
    for run in stored:
        await cache.store_runs([run], asked_at=NOON if run.updated_at == AHEAD else run.updated_at or NOON)
    await cache.set_presence(lost, "lost")

    found = await cache.concurrency(edges_of(start, HOUR, len(averages)))

    assert [each.average for each in found] == pytest.approx(averages)
