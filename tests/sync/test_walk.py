"""A walk claims what it was certainly shown, and not what a few odd times would have it say."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sync.reader import StoredPage
from app.sync.walk import TICK, Walk, newest, reach, top
from storage.records import CoverageRange, Repository, Run, RunChanges, RunPage

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FAR = (NOON.replace(year=2076), NOON.replace(year=2001))


def run(n: int, created: datetime | None, updated: datetime | None = None) -> Run:
    return Run(f"run_{n}", "completed", "main", Repository.parse("acme/api"), created, updated or created, "{}")


def newest_first(count: int, *, first: int = 0) -> list[Run]:
    """One a minute."""
    return [run(n, NOON - n * MINUTE) for n in range(first, first + count)]


def walked(*pages: Sequence[Run], ended: bool = False, changes: RunChanges | None = None) -> Walk:
    walk = Walk(NOON)
    for number, runs in enumerate(pages, start=1):
        token = None if ended and number == len(pages) else str(number)
        walk.step(StoredPage(RunPage(tuple(runs), token), changes or RunChanges(), NOON))
    return walk


def test_a_page_claims_the_middle_of_its_ends() -> None:
    """Of nine runs at each end the middle one: four odd times at an end change nothing."""
    assert walked(newest_first(100)).range() == CoverageRange(NOON - 95 * MINUTE + TICK, NOON - 4 * MINUTE)


@given(odd=st.dictionaries(st.integers(0, 99), st.sampled_from([*FAR, None]), max_size=4))
def test_a_few_odd_times_claim_nothing(odd: dict[int, datetime | None]) -> None:
    """A range lies within what was shown, wherever the odd times stand."""
    runs = [run(n, odd[n]) if n in odd else each for n, each in enumerate(newest_first(100))]
    found = walked(runs).range()

    assert found is not None
    assert found.start is not None
    assert found.end is not None
    assert NOON - 99 * MINUTE < found.start <= found.end <= NOON


def test_further_pages_reach_further_down() -> None:
    """The top stays where the first page had it."""
    walk = walked(newest_first(100), newest_first(100, first=100))

    assert walk.range() == CoverageRange(NOON - 195 * MINUTE + TICK, NOON - 4 * MINUTE)


def test_a_list_that_ended_is_whole() -> None:
    """Down to the very first run, whatever its times say."""
    assert walked(newest_first(3), ended=True).range() == CoverageRange(None, NOON - MINUTE)
    assert walked([], ended=True).range() == CoverageRange(None, None)
    assert walked([run(n, None) for n in range(5)], ended=True).range() == CoverageRange(None, None)


def test_the_order_of_changes_claims_what_was_created_after_the_last_change_shown() -> None:
    """No run changes before it is created."""
    runs = [run(n, NOON - (n * 37 % 300) * MINUTE - n * MINUTE, NOON - n * MINUTE) for n in range(100)]

    assert reach(runs) == NOON - 95 * MINUTE + TICK


@pytest.mark.parametrize("count", [0, 1, 100])
def test_no_order_claims_nothing(count: int) -> None:
    """Nor do times that cannot be read."""
    shuffled = [run(n, NOON - (n * 37 % 101) * MINUTE, NOON - (n * 53 % 101) * MINUTE) for n in range(count)]

    assert walked(shuffled).range() is None
    assert walked([run(n, None) for n in range(count)]).range() is None


def test_a_single_run_is_no_end() -> None:
    """It could be the odd one."""
    assert top(newest_first(1)) is None


def test_three_held_and_unchanged_runs_in_a_row_join() -> None:
    """Over the border of a page, but not over a run that is new or came with another status."""
    held = {"run_3", "run_4", "run_5"}

    assert walked(newest_first(4), newest_first(4, first=4)).meets(held)
    assert not walked(newest_first(8)).meets(held - {"run_4"})
    assert not walked(newest_first(8), changes=RunChanges(updated=("run_4",))).meets(held)


@pytest.mark.parametrize(
    ("shown", "far", "expected"),
    [
        ("%FT%TZ", 0, NOON),
        ("%FT%T", 0, None),
        ("%FT%TZ", 1, NOON - MINUTE),
        ("%FT%TZ", 5, FAR[0]),
        ("%FT%T+00:00", 0, NOON),
    ],
)
def test_the_newest_time_is_one_that_names_its_offset(shown: str, far: int, expected: datetime | None) -> None:
    """A run dated 2076 is not followed; most of the newest ones are."""
    runs = [replace(each, created_at=FAR[0]) if n < far else each for n, each in enumerate(newest_first(20))]
    raw = [json.dumps({"created_at": each.created_at.strftime(shown)}) for each in runs]
    runs = [replace(each, raw_json=text, updated_at=None) for each, text in zip(runs, raw, strict=True)]

    assert newest(runs, NOON) == expected
