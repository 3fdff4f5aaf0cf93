"""The query of the runs table: how each way to change it changes it."""

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from app.config import ViewSettings
from app.console.runs.filter_display import facets
from app.console.runs.pickers import DatesPicker, OrderPicker, ValuePicker, limits_of
from app.console.runs.preferences import PreferencesFile, PreferencesWriter
from app.console.runs.query_controller import QueryController
from app.console.runs.query_line import problem_texts
from app.console.runs.view_sheets import ViewPicker, ViewSaver
from app.console.runs.views import TableQuery
from app.console.sheets.mark_picker import MarkPicker
from app.query import parse
from storage.records import RunFilter, RunRow, RunSort
from storage.records.grouping import Grouping
from tests.console.runs.conftest import Desk
from widgets.filter.chips import SheetRequested, ViewBar
from widgets.runs.table import RunTable


class Held:
    """A controller, and what it said of its changes."""

    def __init__(self, desk: Desk, row: RunRow | None = None) -> None:
        self.desk = desk
        file = PreferencesFile.of(desk.settings, desk.settings.profile())
        self.preferences = PreferencesWriter(file, desk.started.append, desk.said.append)
        self.before: list[TableQuery] = []
        self.query = QueryController(desk.context, self.preferences, row=lambda: row, changed=self.before.append)

    @property
    def line(self) -> str:
        return self.query.now.line


@pytest.fixture
def held(desk: Desk) -> Held:
    return Held(desk)


def test_it_begins_with_the_view_and_order_of_last_time(desk: Desk) -> None:
    """A line that was typed is not brought back."""
    file = PreferencesFile.of(desk.settings, desk.settings.profile())
    file.change(lambda known: replace(known, view="Failed 24h", sort=RunSort("took")))

    assert Held(desk).query.now == TableQuery.of(Held(desk).query.views[2], RunSort("took"))


def test_each_change_says_what_was_before_and_is_remembered(held: Held) -> None:
    """The screen compares; the file has the view and the order."""
    first = held.query.now
    held.query.do("next_view")
    held.query.sort_by("took")

    assert held.before[0] == first
    assert held.before[1].view.name == "Active"
    assert (held.preferences.now.view, held.preferences.now.sort) == ("Active", RunSort("took"))


def test_views_go_round(held: Held) -> None:
    """Beyond the last one comes the first."""
    names = []
    for _ in held.query.views:
        names.append(held.query.now.view.name)
        held.query.do("next_view")

    assert names == ["All", "Active", "Failed 24h", "Stuck"]
    assert held.query.now.view.name == "All"
    held.query.do("view_before")
    assert held.query.now.view.name == "Stuck"


def test_widgets_ask_for_another_query(held: Held) -> None:
    """A view's tab, a facet, a column's title and the head of a group."""
    held.query.show(replace(held.query.now, grouping=Grouping("repository")))
    for message in (SheetRequested("reverse"), RunTable.SortRequested("took"), RunTable.GroupToggled("acme/api")):
        held.query.requested(message)
    assert held.query.now.sort == RunSort("took")
    assert held.query.now.grouping == Grouping("repository").toggled("acme/api")

    held.query.requested(ViewBar.Picked(2))
    assert held.query.now.view == held.query.views[2]


def test_clearing_undoes_the_line_first_and_then_the_view(held: Held) -> None:
    """The order stays."""
    held.query.show_view(held.query.views[2])
    held.query.do("reverse")
    held.query.set_line("status:failed api")

    held.query.clear()
    assert held.line == "status:failed since:24h"
    held.query.clear()
    assert held.query.now == TableQuery(sort=RunSort("started", descending=False))


def test_what_is_typed_counts_as_far_as_it_goes_and_is_written_out_at_the_end(held: Held) -> None:
    """`status:fa` stands for failed; a mistake stays to be mended."""
    held.query.type("status:fa", 9)
    assert held.query.condition.statuses == ("failed",)

    held.query.leave("status:fa", 9)
    assert held.query.now == TableQuery(line="status:failed")
    held.query.leave("stauts:fa", 9)
    assert held.line == "stauts:fa"


@pytest.mark.parametrize(
    ("name", "sheet", "result", "line"),
    [
        ("status", MarkPicker, (("failed",), ("queued",)), "status:failed -status:queued api"),
        ("repository", ValuePicker, (("acme/web",), ()), "is:active api repo:acme/web"),
        ("branch", ValuePicker, ((), ("main",)), "is:active api -branch:main"),
        ("started", DatesPicker, ("2h", ""), "is:active api since:2h"),
    ],
)
async def test_a_sheet_writes_into_the_line(held: Held, name: str, sheet: type, result: object, line: str) -> None:
    """In place of the terms that it is about, otherwise at the end; a sheet that was left changes nothing."""
    held.query.set_line("is:active api")
    for answer, expected in ((None, "is:active api"), (result, line)):
        held.query.do(name)
        await held.desk.work()
        assert isinstance(held.desk.screens[-1][0], sheet)
        held.desk.answer(answer)
        assert held.line == expected


async def test_a_view_and_an_order_are_picked(held: Held) -> None:
    """A view that was saved is on show at once; an order leaves the line as it is."""
    held.query.do("save_view")
    assert isinstance(held.desk.screens[-1][0], ViewSaver)
    held.desk.answer(ViewSettings("Mine", "repo:acme/*"))
    assert (held.query.now.view.name, held.line) == ("Mine", "repo:acme/*")
    assert not held.desk.said
    await held.desk.work()
    assert held.desk.said == ["Saved as the view Mine."]

    held.query.do("order")
    assert isinstance(held.desk.screens[-1][0], OrderPicker)
    held.desk.answer(RunSort("branch"))
    assert (held.line, held.query.now.sort) == ("repo:acme/*", RunSort("branch"))

    held.query.do("views")
    assert isinstance(held.desk.screens[-1][0], ViewPicker)
    held.desk.answer("all")
    assert held.query.now.view.name == "All"


async def test_the_branch_of_the_run_under_the_cursor(desk: Desk) -> None:
    """A run without a branch stands for its repository; without a run nothing changes."""
    rows = await desk.cache.rows(RunFilter(), RunSort(), offset=0, limit=9)
    lines = []
    for row in (rows[0], rows[3], None):
        held = Held(desk, row)
        held.query.do("same_branch")
        lines.append(held.line)

    assert lines == ["repo:acme/api branch:main", "repo:acme/web", ""]


async def test_names_are_offered_once_they_are_learnt(held: Held) -> None:
    """From the cache; an empty line offers nothing."""
    held.query.learn()
    await held.desk.work()

    assert [offer.insert for offer in held.query.offers("repo:acme/w", 11)] == ["acme/web"]
    assert held.query.offers("", 0) == ()


@pytest.mark.parametrize("name", ["status", "repository", "branch"])
def test_a_sheet_that_needs_the_cache_waits_for_it(desk: Desk, name: str) -> None:
    """It says so, and starts nothing."""
    desk.session.engine = None
    Held(desk).query.do(name)

    assert desk.said == [desk.session.not_open]
    assert not desk.screens


def test_a_problem_is_said_in_less_and_less_space(desk: Desk) -> None:
    """The shortest text is the cure alone."""
    problem = parse("stauts:failed", desk.clock()).problems[0]
    texts = list(problem_texts(problem))

    assert texts[0].startswith("✗ There is no stauts:. Did you mean status:? ")
    assert texts[-1] == "✗ Did you mean status:?"
    assert [len(text) for text in texts] == sorted((len(text) for text in texts), reverse=True)


def test_facets_say_each_thing_in_a_word(desk: Desk) -> None:
    """The first value and how many more; `any` where nothing is asked for."""
    line = "is:stuck -status:failed repo:acme/api,acme/web since:2h"
    found = {facet.name: facet.value for facet in facets(line, parse(line, desk.clock()).filter)}

    assert found == {"status": "stuck +1", "repository": "acme/api +1", "branch": "any", "started": "since 2h"}


@pytest.mark.parametrize(
    ("zone", "limits"),
    [
        ("UTC", ("2026-04-28", "2026-04-28")),
        ("Asia/Tokyo", ("2026-04-28T00:00+09:00", "2026-04-28T23:59:59.999999+09:00")),
        ("America/St_Johns", ("2026-04-28T00:00-02:30", "2026-04-28T23:59:59.999999-02:30")),
    ],
)
def test_a_day_is_one_of_the_local_calendar(
    zone: str, limits: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its seconds is left out, and none of the next day's comes in."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    assert limits_of(date(2026, 4, 28)) == limits

    found = parse(f"since:{limits[0]} until:{limits[1]}", datetime(2026, 5, 1, tzinfo=UTC))
    since, until = found.filter.since, found.filter.until
    assert not found.problems
    assert since is not None
    assert until is not None
    assert timedelta(days=1) - (until - since) <= timedelta(microseconds=1)
    assert since.astimezone().isoformat(timespec="minutes").startswith("2026-04-28T00:00")
