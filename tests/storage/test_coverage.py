"""Coverage merges ranges, and never claims more than it was told."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from sqlite3 import Connection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.cache import Cache, coverage
from storage.records import Coverage, CoverageGap, CoverageRange
from tests.storage.conftest import NOON, connected, make_run

MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)

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
@settings(max_examples=150)
def test_ranges_are_merged_as_a_union(connection: Connection, parts: list[tuple[int, int]]) -> None:
    """In whatever order they come: what is held is their union, and the newest of its ranges is what is told."""
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


async def test_nothing_is_complete_at_first(cache: Cache) -> None:
    """An empty cache promises nothing."""
    found = await cache.coverage()

    assert found == Coverage()
    assert (found.complete_since, found.whole, found.gaps) == (None, False, ())


async def test_a_newer_range_does_not_make_the_older_one_complete(cache: Cache) -> None:
    """Between them lies a gap; filling it joins the two."""
    await cache.extend_coverage(None, NOON)
    later = await cache.extend_coverage(NOON + 5 * MINUTE, NOON + 9 * MINUTE)

    joined = await cache.extend_coverage(NOON, NOON + 5 * MINUTE)

    assert not later.whole
    assert later.complete_since == NOON + 5 * MINUTE
    assert later.ranges == (CoverageRange(NOON + 5 * MINUTE, NOON + 9 * MINUTE), CoverageRange(None, NOON))
    assert later.gaps == (CoverageGap(NOON, NOON + 5 * MINUTE),)
    assert joined.whole
    assert joined.ranges == (CoverageRange(None, NOON + 9 * MINUTE),)
    assert joined.gaps == ()


async def test_ranges_a_microsecond_apart_are_one(cache: Cache) -> None:
    """Nothing fits between them."""
    await cache.extend_coverage(NOON + TICK, NOON + MINUTE)

    assert (await cache.extend_coverage(NOON - MINUTE, NOON)).ranges == (CoverageRange(NOON - MINUTE, NOON + MINUTE),)


async def test_complete_is_said_with_its_time(cache: Cache) -> None:
    """Only a look at the newest page moves it; what is filled in below does not."""
    await cache.extend_coverage(NOON, NOON + MINUTE, NOON + 2 * MINUTE)
    filled = await cache.extend_coverage(NOON - MINUTE, NOON)
    apart = await cache.extend_coverage(None, NOON - 9 * MINUTE)
    touched = await cache.touch_coverage(NOON + 3 * MINUTE)
    earlier = await cache.touch_coverage(NOON)

    assert filled.as_of == apart.as_of == NOON + 2 * MINUTE
    assert touched.as_of == earlier.as_of == NOON + 3 * MINUTE
    assert touched.is_current(NOON + 3 * MINUTE)
    assert not touched.is_current(NOON + 4 * MINUTE)


async def test_a_newer_range_has_a_time_of_its_own(cache: Cache) -> None:
    """That the older one reached up to its own look says nothing of the newer."""
    await cache.extend_coverage(None, NOON, NOON + MINUTE)

    assert (await cache.extend_coverage(NOON + MINUTE, NOON + 2 * MINUTE)).as_of is None


async def test_the_whole_history_is_complete_since_its_first_run(cache: Cache) -> None:
    """Walked to its end, the list is complete since the oldest run; without any run, as of the walk."""
    empty = await cache.extend_coverage(None, None, NOON)
    await cache.store_runs([make_run(1, created_at=NOON - MINUTE), make_run(2, created_at=None)], asked_at=NOON)
    found = await cache.coverage()

    assert (empty.whole, empty.complete_since) == (True, NOON)
    assert (found.whole, found.complete_since) == (True, NOON - MINUTE)


async def test_what_comes_after_an_empty_list_leaves_a_gap(cache: Cache) -> None:
    """Above an empty list nothing was claimed."""
    await cache.extend_coverage(None, None, NOON)
    later = await cache.extend_coverage(NOON, NOON + MINUTE)

    assert not later.whole
    assert later.gaps == (CoverageGap(None, NOON),)


async def test_a_range_cannot_end_before_it_starts(cache: Cache) -> None:
    """Such a range is a mistake of the caller, and is not kept."""
    with pytest.raises(ValueError, match="end before"):
        await cache.extend_coverage(NOON, NOON - MINUTE)

    assert await cache.coverage() == Coverage()


async def test_a_clock_that_is_set_back_takes_the_claim_back(cache: Cache) -> None:
    """By as much as it went back, and until its time has passed; a list read to its end is known as of then."""
    hour = 60 * MINUTE
    await cache.note_clock(timedelta(0), NOON)
    await cache.extend_coverage(NOON - 9 * hour, NOON, NOON)
    steps = [await cache.note_clock(ahead, NOON + MINUTE) for ahead in (-4 * timedelta(seconds=1), timedelta(0), -hour)]
    cut = await cache.coverage()
    later = await cache.extend_coverage(NOON - 9 * hour, NOON, NOON + 2 * MINUTE)
    whole = await cache.extend_coverage(None, NOON, NOON + 3 * MINUTE)

    assert steps == [False, False, True]
    assert [each.end for each in cut.ranges] == [NOON - hour - 2 * timedelta(seconds=1)]
    assert later == cut
    assert (whole.whole, whole.as_of, whole.ranges[0].end) == (True, NOON + 3 * MINUTE, cut.ranges[0].end)
    assert await cache.note_clock(-hour, NOON + 59 * MINUTE)
    assert not await cache.note_clock(-hour, NOON + 61 * MINUTE)


async def test_a_clock_set_back_before_all_that_is_held_leaves_something_to_fetch(cache: Cache) -> None:
    """Nothing is complete up to any time, and all that is older is missing."""
    await cache.note_clock(timedelta(0), NOON)
    await cache.extend_coverage(NOON - 9 * MINUTE, NOON, NOON)
    await cache.note_clock(-60 * MINUTE, NOON + MINUTE)
    found = await cache.coverage()

    assert (found.as_of, [gap.after for gap in found.gaps]) == (None, [None])
    assert found.gaps[0].before == NOON - 60 * MINUTE - 2 * timedelta(seconds=1)


async def test_our_own_clock_set_forward_costs_no_freeze(cache: Cache) -> None:
    """It looks as if the service's were set back, but the time of what was claimed has passed."""
    await cache.note_clock(timedelta(0), NOON)
    await cache.extend_coverage(NOON - 9 * MINUTE, NOON, NOON)

    assert not await cache.note_clock(-5 * MINUTE, NOON + 6 * MINUTE, NOON)


@pytest.mark.parametrize("extends", [True, False])
async def test_our_own_clock_set_back_says_nothing_of_the_future(cache: Cache, *, extends: bool) -> None:
    """What was known as of three hours ahead is known as of the next poll."""
    await cache.extend_coverage(NOON - MINUTE, NOON, NOON + 180 * MINUTE)
    known = await (cache.extend_coverage(NOON, NOON, NOON) if extends else cache.touch_coverage(NOON))

    assert known.as_of == NOON


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_a_clock_that_was_set_back_before_it_was_heard(cache: Cache, *, is_claimed: bool) -> None:
    """The newest run shown is dated after the service's present: nothing above that is claimed until then."""
    if is_claimed:
        await cache.extend_coverage(NOON - 9 * MINUTE, NOON, NOON - MINUTE)
    steps = [await cache.note_clock(-5 * MINUTE, NOON, NOON)]
    found = await cache.extend_coverage(NOON - 9 * MINUTE, NOON, NOON)
    steps += [await cache.note_clock(-5 * MINUTE, NOON + at * MINUTE, NOON + 8 * MINUTE) for at in (4, 6)]

    assert steps == [True, True, False]
    present = NOON - (6 if is_claimed else 5) * MINUTE
    assert [each.end for each in found.ranges] == [present - 2 * timedelta(seconds=1)]


async def test_a_clock_set_back_while_nothing_was_claimed(cache: Cache) -> None:
    """Until its time has passed when it was set back, only a list read to its end is claimed, as of then."""
    await cache.note_clock(timedelta(0), NOON)
    steps = [await cache.note_clock(-60 * MINUTE, NOON + at * MINUTE) for at in (1, 60, 62)]

    assert steps == [True, True, False]


async def test_runs_that_came_after_the_last_claim_hold_it_back_as_well(cache: Cache) -> None:
    """What was created between that claim and the setting of the clock lies above what is created then."""
    await cache.note_clock(timedelta(0), NOON)
    await cache.extend_coverage(NOON - 9 * MINUTE, NOON, NOON)
    newest = (NOON + 8 * MINUTE, None)
    steps = [await cache.note_clock(-60 * MINUTE, NOON + 9 * MINUTE, each) for each in newest]
    await cache.note_clock(-60 * MINUTE, NOON + 67 * MINUTE)

    assert steps == [True, True]
    assert await cache.note_clock(-60 * MINUTE, NOON + 67 * MINUTE)
    assert not await cache.note_clock(-60 * MINUTE, NOON + 69 * MINUTE)
