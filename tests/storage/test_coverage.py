"""Coverage merges ranges, and never claims more than it was told."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from sqlite3 import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.cache import Cache, coverage
from storage.records import Coverage
from tests.storage.conftest import NOON, connected, make_run

MINUTE = timedelta(minutes=1)

ranges = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with connected(tmp_path_factory.mktemp("coverage")) as (writer, _):
        yield writer


def merged(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same union of closed ranges, made from the points and half points that lie in one of them."""
    inside = [half for half in range(-2, 100) if any(2 * start <= half <= 2 * end for start, end in parts)]
    runs = itertools.groupby(enumerate(inside), lambda pair: pair[1] - pair[0])
    halves = [[half for _, half in run] for _, run in runs]
    return [(run[0] // 2, run[-1] // 2) for run in halves]


@given(parts=st.lists(ranges, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_ranges_are_merged_as_a_union(connection: Connection, parts: list[tuple[int, int]]) -> None:
    """In whatever order they come: what is held is their union, and the newest of its ranges is what is told."""
    connection.execute("DELETE FROM coverage")

    for start, end in parts:
        told = coverage.extend(connection, NOON + start * MINUTE, NOON + end * MINUTE)

    expected = merged(parts)
    found = connection.execute("SELECT start_us, end_us FROM coverage ORDER BY start_us").fetchall()
    minute_us = 60_000_000
    base_us = round(NOON.timestamp()) * 1_000_000
    assert [((start - base_us) // minute_us, (end - base_us) // minute_us) for start, end in found] == expected
    assert told == coverage.coverage(connection) == Coverage(complete_since=NOON + expected[-1][0] * MINUTE)
    assert coverage.covered_until(connection) == NOON + expected[-1][1] * MINUTE


async def test_nothing_is_complete_at_first(cache: Cache) -> None:
    """An empty cache promises nothing."""
    assert await cache.coverage() == Coverage(complete_since=None, whole=False)
    assert await cache.covered_until() is None


async def test_a_gap_is_not_complete(cache: Cache) -> None:
    """Only the range that reaches up to the newest look counts; filling the gap joins the two."""
    await cache.extend_coverage(None, NOON)
    later = await cache.extend_coverage(NOON + 5 * MINUTE, NOON + 9 * MINUTE)
    assert later == Coverage(complete_since=NOON + 5 * MINUTE)

    joined = await cache.extend_coverage(NOON, NOON + 5 * MINUTE)

    assert joined.whole
    assert await cache.covered_until() == NOON + 9 * MINUTE


async def test_the_whole_history_is_complete_since_its_first_run(cache: Cache) -> None:
    """Walked to its end, the list is complete since the oldest run; without any run, as of the walk."""
    assert await cache.extend_coverage(None, NOON) == Coverage(complete_since=NOON, whole=True)

    unreadable = make_run(2, created_at=None)
    await cache.store_runs([make_run(1, created_at=NOON - MINUTE), unreadable], seen_at=NOON)

    assert await cache.coverage() == Coverage(complete_since=NOON - MINUTE, whole=True)


async def test_a_range_cannot_end_before_it_starts(cache: Cache) -> None:
    """Such a range is a mistake of the caller, and is not kept."""
    with pytest.raises(ValueError, match="end before"):
        await cache.extend_coverage(NOON, NOON - MINUTE)

    assert await cache.coverage() == Coverage()
