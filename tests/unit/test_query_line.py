"""Changing a line of the query language, and reading it while it is typed."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.console.runs.views import as_typed, listed, replaced
from app.query import parse
from storage.records import RunFilter

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "new", "after"),
    [
        ("", ["status:failed"], "status:failed"),
        ("login", ["status:failed"], "login status:failed"),
        ("status:queued login -status:failed", ["status:working"], "status:working login"),
        ('since:7d status:queued "two words"', [], 'since:7d "two words"'),
        ("Status:queued since:7d", ["-status:failed"], "-status:failed since:7d"),
    ],
)
def test_new_terms_take_the_place_of_old_ones(line: str, new: list[str], after: str) -> None:
    """What else stands in the line stays as it was written: `since:7d` is not turned into a date."""
    assert replaced(line, {"status"}, new) == after


@given(st.lists(st.text(max_size=12), max_size=3, unique=True), st.lists(st.text(min_size=1, max_size=12), max_size=3))
def test_listed_values_are_read_back_as_themselves(asked: list[str], excluded: list[str]) -> None:
    """Whatever is in a branch's name: blanks, quotes, commas, stars."""
    asked = [value for value in asked if value]
    excluded = list(dict.fromkeys(excluded))
    query = parse(" ".join(listed("branch", asked, excluded)), NOW)

    assert not query.problems
    assert (query.filter.branches, query.filter.not_branches) == (tuple(asked), tuple(excluded))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("status:", RunFilter()),
        ("status:f", RunFilter(statuses=("failed",))),
        ("status:w,q", RunFilter(statuses=("w", "queued"))),
        ("status:odd", RunFilter(statuses=("odd",))),
        ("repo:pay", RunFilter(repositories=("*pay*",))),
        ("-branch:agent/", RunFilter(not_branches=("*agent/*",))),
        ("login since:2", RunFilter(search="login")),
        ("is:active", RunFilter(active=True)),
        ('login "two', RunFilter(search="login")),
        ("login -", RunFilter(search="login -")),
        ("login -x", RunFilter(search="login")),
    ],
)
def test_what_is_begun_counts_as_far_as_it_goes(line: str, wanted: RunFilter) -> None:
    """A line that is being typed never empties the table for want of its last letters, and is not called wrong."""
    query = parse(as_typed(line, len(line)), NOW)

    assert query.filter == wanted
    assert not query.problems


@given(st.text(alphabet=" -:,*abstu/7d", max_size=30), st.integers(0, 30))
def test_only_the_piece_at_the_cursor_is_read_differently(line: str, cursor: int) -> None:
    """Behind a blank, the line means what it says."""
    assert parse(as_typed("stauts:failed", 13), NOW).problems, "no further letter can correct it"
    assert parse(as_typed(f"{line} ", len(line) + 1), NOW) == parse(f"{line} ", NOW)
    assert isinstance(as_typed(line, min(cursor, len(line))), str)
