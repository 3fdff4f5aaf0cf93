"""Charts and spans of time as pure functions."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.insights.screen import SPANS
from storage.records.coverage import Coverage
from storage.records.insights import Outcomes
from widgets.insights import InsightsView, ceiling, extent, share, stacked

DAY, WEEK, MONTH = SPANS


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place where clocks are put forward and back."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_days_begin_at_local_midnight_also_where_the_clock_was_put_forward(berlin: None) -> None:
    """29 March 2026 has 23 hours in Berlin."""
    edges = WEEK.edges(datetime(2026, 3, 31, 10, tzinfo=UTC))

    lengths = [end - start for start, end in pairwise(edges)]
    assert len(lengths) == 7
    assert lengths[4] == timedelta(hours=23)
    assert {length for index, length in enumerate(lengths) if index != 4} == {timedelta(hours=24)}
    assert all(edge.astimezone().hour == 0 for edge in edges)


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3), st.integers(5, 40))
def test_every_part_of_a_bar_that_is_there_is_seen(values: list[int], rows: int) -> None:
    """One failure among ten thousand takes a row; no bar is taller than its chart."""
    taken = stacked(values, ceiling(sum(values)), rows)

    assert [count > 0 for count in taken] == [value > 0 for value in values]
    assert sum(taken) <= rows


@pytest.mark.parametrize(
    ("part", "said"), [(None, "-"), (0.0, "0%"), (0.001, "1%"), (0.5, "50%"), (0.9999, "99%"), (1.0, "100%")]
)
def test_nearly_all_is_not_all(part: float | None, said: str) -> None:
    """One failure in ten thousand is no 100%."""
    assert share(part) == said


@pytest.mark.parametrize(("hour", "said"), [(22, "since 23:00 yesterday"), (23, "since 00:00 today")])
def test_the_last_hour_of_a_day_has_no_yesterday(hour: int, said: str) -> None:
    """24 hours, this one included, are those of today."""
    now = datetime(2026, 5, 4, hour, 30, tzinfo=UTC)
    hours = tuple(Outcomes(*each) for each in pairwise(DAY.edges(now)))
    view = InsightsView(DAY.title, DAY.step, now, hours, (), Coverage())

    assert said in extent(view)
