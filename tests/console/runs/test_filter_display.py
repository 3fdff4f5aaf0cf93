"""The views' numbers of runs: counted where an index does it, and never guessed."""

import pytest

from app.config import ViewSettings
from app.console.runs.filter_display import ViewCounts
from app.console.session.troubles import nothing_to_show
from app.query import parse
from storage.records import Coverage
from tests.console.runs.conftest import Desk, a_run
from tests.console.runs.test_query_controller import Held
from tests.console.scenes import SceneClock
from widgets.filter.extent import Extent


@pytest.fixture
def held(desk: Desk) -> Held:
    held = Held(desk)
    for view in (
        ViewSettings("Words", "main"),
        ViewSettings("Web", "repo:acme/web"),
        ViewSettings("Main", "branch:main"),
    ):
        held.preferences.change(lambda known, view=view: known.with_view(view))
    return held


def extent(matching: int, *, is_counted: bool = True) -> Extent:
    return Extent(matching, 4, Coverage(), is_filtered=True, is_counted=is_counted)


async def test_views_are_counted_in_the_background_from_indexes(held: Held) -> None:
    """What the table itself was counted for is known at once; a search of all runs is not made for a tab."""
    changes: list[str] = []
    counts = ViewCounts(held.desk.context, held.query, lambda: changes.append("changed"))
    assert counts.of("") is None

    counts.take(extent(4))
    assert (counts.of(""), counts.of("is:active")) == (4, None)

    await held.desk.work()
    lines = [view.query for view in held.query.views]
    assert [(line, counts.of(line)) for line in lines] == [
        ("", 4), ("is:active", 1), ("status:failed since:24h", 1), ("is:stuck", 0),
        ("main", None), ("repo:acme/web", 1), ("branch:main", None),
    ]  # fmt: skip

    await held.desk.store(a_run(9, "working"))
    counts.take(Extent(5, 5, Coverage(), is_filtered=False))
    await held.desk.work()

    assert (counts.of(""), counts.of("is:active")) == (5, 2)
    assert changes == ["changed", "changed"]


async def test_a_search_that_goes_on_has_no_number(held: Held) -> None:
    """Its view's number is there once it was counted for the table, and gone once another view is on show."""
    counts = ViewCounts(held.desk.context, held.query, lambda: None)
    held.query.show_view(next(view for view in held.query.views if view.name == "Words"))
    counts.take(extent(2, is_counted=False))
    assert counts.of("main") is None

    counts.take(extent(2))
    await held.desk.work()
    assert counts.of("main") == 2

    held.query.type("main x", 6)
    counts.take(extent(1))
    assert counts.of("main") == 2

    held.query.show_view(held.query.views[0])
    counts.take(extent(4))
    await held.desk.work()
    assert counts.of("main") is None
    assert parse("main", held.desk.clock()).filter.is_scan


def test_a_search_without_a_result_is_not_a_service_without_runs() -> None:
    """Also before it is counted again what the table shows: the numbers are those of the query before."""
    before = Extent(4, 4, Coverage(), is_filtered=False)

    assert nothing_to_show(None, before, None, SceneClock()()).title == "No run matches"
