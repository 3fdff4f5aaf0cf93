"""Coverage merges ranges, and never claims more than was reported."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from sqlite3 import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.cache import coverage
from storage.cache.cache import Cache
from storage.records import CLOCK_STEP, Coverage, CoverageRange
from tests.storage.conftest import NOON, connected, make_run

MINUTE = timedelta(minutes=1)

ranges = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with connected(tmp_path_factory.mktemp("coverage")) as (writer, _):
        yield writer


def merged(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same union of closed ranges, calculated from the points and half points inside one of them."""
    inside = [half for half in range(-2, 100) if any(2 * start <= half <= 2 * end for start, end in parts)]
    runs = itertools.groupby(enumerate(inside), lambda pair: pair[1] - pair[0])
    halves = [[half for _, half in run] for _, run in runs]
    return [(run[0] // 2, run[-1] // 2) for run in halves]


@given(parts=st.lists(ranges, min_size=1, max_size=12))
def test_stored_ranges_are_merged(connection: Connection, parts: list[tuple[int, int]]) -> None:
    """The stored ranges are the union in any order, and the newest of them is reported."""
    connection.execute("DELETE FROM coverage")

    for start, end in parts:
        told = coverage.extend(connection, NOON + start * MINUTE, NOON + end * MINUTE)

    expected = [(NOON + start * MINUTE, NOON + end * MINUTE) for start, end in merged(parts)]
    assert [(each.start, each.end) for each in reversed(told.ranges)] == expected
    assert told == coverage.coverage(connection)
    assert told.complete_since == expected[-1][0]
    assert [(gap.after, gap.before) for gap in reversed(told.gaps)] == [
        (end, start) for (_, end), (start, _) in itertools.pairwise([(None, None), *expected])
    ]


async def test_the_whole_history_is_complete_since_its_first_run(cache: Cache) -> None:
    """Once walked to its end, the list is complete since the oldest run, or without runs since the walk."""
    with pytest.raises(ValueError, match="end before"):
        await cache.extend_coverage(NOON, NOON - MINUTE)
    assert await cache.coverage() == Coverage()
    empty = await cache.extend_coverage(None, None, NOON)
    await cache.store_runs([make_run(1, created_at=NOON - MINUTE), make_run(2, created_at=None)], asked_at=NOON)
    found = await cache.coverage()

    assert (empty.whole, empty.complete_since) == (True, NOON)
    assert (found.whole, found.complete_since) == (True, NOON - MINUTE)


async def test_a_clock_set_back_shortens_coverage(cache: Cache) -> None:
    """The claim ends where the clock was set back to; jitter and a clock set forward take nothing away."""
    hour = 60 * MINUTE
    await cache.compare_clocks(timedelta(0))
    await cache.extend_coverage(NOON - 9 * hour, NOON - 5 * hour)
    await cache.extend_coverage(NOON - MINUTE, NOON, NOON)
    steps = [await cache.compare_clocks(ahead) for ahead in (timedelta(seconds=-4), MINUTE, MINUTE - hour)]
    cut = await cache.coverage()

    assert steps == [False, False, True]
    assert cut.ranges == (CoverageRange(NOON - 9 * hour, NOON - 5 * hour),)
    await cache.extend_coverage(None, NOON, NOON)
    await cache.compare_clocks(-hour)
    assert (await cache.coverage()).ranges == (CoverageRange(None, NOON - hour - CLOCK_STEP),)


async def test_a_neighbour_is_the_nearest_run_that_changed_after_its_creation(cache: Cache) -> None:
    """The neighbour must still be shown, and is not the run itself."""
    times = {1: -9, 2: -2, 3: 0, 4: 1, 5: 4}
    runs = [make_run(n, created_at=NOON + at * MINUTE, updated_at=NOON + 9 * MINUTE) for n, at in times.items()]
    runs[3] = replace(runs[3], updated_at=runs[3].created_at)
    await cache.store_runs(runs, asked_at=NOON)
    found = [await cache.neighbour(NOON, "run_0003")]
    await cache.set_presence(["run_0002"], "lost")
    found.append(await cache.neighbour(NOON, "run_0003"))

    assert found == [NOON - 2 * MINUTE, NOON + 4 * MINUTE]
    assert await cache.neighbour(NOON, "") == NOON
