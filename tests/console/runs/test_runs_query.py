"""The query of the runs: how each way to change it changes it, and what stays in sight then."""

import itertools
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from app.console.app import RunwardenApp
from app.console.sheets import ChoiceSheet
from app.profiles import ViewSettings
from app.runs.query import parse
from app.runs.screen import RunsScreen
from app.runs.screen_pickers import DatesPicker, MarkPicker, ValuePicker, ViewSaver, limits_of
from app.runs.screen_views import ALL, TableQuery
from storage.records import RunSort
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY, a_day, app_on
from tests.lab import Lab
from tests.waiting import present
from widgets.runs.filter import SearchInput


def runs(scene: Scene) -> RunsScreen:
    """The screen, which has to be on show."""
    assert isinstance(scene.app.screen, RunsScreen)
    return scene.app.screen


async def answered(scene: Scene, action: str, sheet: type, result: Any) -> TableQuery:
    """The query after a sheet was opened and closed with a result."""
    await scene.app.screen.run_action(action)
    await scene.settle()
    assert isinstance(scene.app.screen, sheet)
    scene.app.screen.dismiss(result)
    await scene.settle()
    return runs(scene).table_query


async def clearing_undoes_the_line_first_and_then_the_view(scene: Scene) -> None:
    """The order stays."""
    await scene.press("]", "]", "runs.order", "enter")
    runs(scene).set_line("status:failed api")

    await scene.press("escape")
    assert runs(scene).table_query.line == "status:failed since:24h"
    await scene.press("escape")
    assert runs(scene).table_query == TableQuery(sort=RunSort("started", descending=False))


async def what_is_typed_counts_as_far_as_it_goes_and_is_exact_at_the_end(scene: Scene) -> None:
    """While it is typed, `repo:acme/p` finds what contains it; enter keeps the line, which then means what it says."""
    await scene.press("slash", *"repo:acme/payment")
    assert {row.repository for row in scene.table.rows_on_show} == {"acme/payment-service"}
    await scene.press("enter")
    assert runs(scene).table_query == TableQuery(line="repo:acme/payment")
    assert not scene.table.count

    await scene.press("escape", "slash", *"repo:acme/payment-service", "enter")
    assert runs(scene).table_query.line == "repo:acme/payment-service"
    assert {row.repository for row in scene.table.rows_on_show} == {"acme/payment-service"}
    assert scene.app.focused is scene.table

    await scene.press("escape", "slash", *"stauts:fa", "enter")
    assert runs(scene).table_query.line == "stauts:fa"


async def active_runs_can_be_kept_on_top(scene: Scene) -> None:
    """The order of the sheet; the untouched cursor is on the newest of them, and the next start has it again."""
    await scene.press("runs.order")
    assert "active first, each newest first" in scene.text
    await scene.press("6")

    assert [row.is_final for row in scene.table.rows_on_show[:5]] == [False] * 4 + [True]
    assert scene.table.row == scene.table.rows_on_show[0]
    assert runs(scene).preferences.now.sort == RunSort("active", descending=False)


async def the_branch_of_the_run_under_the_cursor(scene: Scene) -> None:
    """All runs on it, in its repository."""
    row = scene.table.row
    assert row is not None
    await scene.press("runs.same_branch")

    assert runs(scene).table_query.line == f"repo:{row.repository} branch:{row.branch_name}"
    assert {each.branch_name for each in scene.table.rows_on_show} == {row.branch_name}


async def a_line_with_a_mistake_is_not_kept_as_a_view(scene: Scene) -> None:
    """Nor while it is typed; the notice says why. A correct line is kept as it was typed."""
    mistakes = {"status:exploded": "the status 'exploded'", "status:": "lacks its value", "result:fixed": "no result:"}
    for line, refusal in mistakes.items():
        await scene.press("slash", *line, "runs.save_view")
        assert isinstance(scene.app.screen, RunsScreen)
        assert any(refusal in said for said in scene.toasts), line
        await scene.press("escape", "escape")

    await scene.press("right_square_bracket", "slash", *"repo:acme/p", "runs.save_view", *"Typed", "enter")
    assert [(view.name, view.query) for view in runs(scene).preferences.now.views] == [
        ("Typed", "is:active repo:acme/p")
    ]


async def a_sheet_that_changes_nothing_leaves_the_line_as_it_was_typed(scene: Scene) -> None:
    """What was typed in short, or in quotes, is not written out."""
    for line, keys in (
        ("repo:api status:Failed", ("runs.repositories", "s")),
        ('repo:"acme/api" since:7d', ("runs.repositories", "t")),
        ("branch:agent/*,main", "b"),
    ):
        runs(scene).set_line(line)
        for key in keys:
            await scene.press(key, "enter")
            assert runs(scene).table_query.line == line, key


async def test_sheets_write_into_the_query(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the terms that one is about, else at the end; a sheet that was left changes nothing.

    A view that was saved is on show at once; an order leaves the line as it is. While the rows are replaced, keys about
    rows do nothing.
    """
    sheets: tuple[tuple[str, type, Any, str], ...] = (
        ("pick_statuses", MarkPicker, (("failed",), ("queued",)), "status:failed -status:queued api"),
        ("pick_values('repo')", ValuePicker, (("acme/web",), ()), "is:active api repo:acme/web"),
        ("pick_values('branch')", ValuePicker, ((), ("main",)), "is:active api -branch:main"),
        ("pick_dates", DatesPicker, ("2h", ""), "is:active api since:2h"),
    )
    async with staged() as scene:
        for action, sheet, result, line in sheets:
            runs(scene).set_line("is:active api")
            assert (await answered(scene, action, sheet, None)).line == "is:active api"
            assert (await answered(scene, action, sheet, result)).line == line

        query = await answered(scene, "save_view", ViewSaver, ViewSettings("Mine", "repo:acme/*"))
        assert (query.view.name, query.line) == ("Mine", "repo:acme/*")
        for key, line in (("enter", "repo:acme/*"), ("ctrl+s", "repo:acme/web")):
            runs(scene).set_line("repo:acme/web")
            await scene.press("runs.save_view", "enter")
            await scene.shows("There is such a view: ctrl+s replaces it, esc keeps it.")
            await scene.press(key, "escape")
            assert next(view.query for view in runs(scene).views if view.name == "Mine") == line
        runs(scene).set_line("repo:acme/*")
        query = await answered(scene, "pick_order", ChoiceSheet, RunSort("branch"))
        assert (query.line, query.sort) == ("repo:acme/*", RunSort("branch"))
        assert (await answered(scene, "views", ChoiceSheet, (ALL, False))).view.name == "All"

        first, opened = scene.table.row, scene.app.screen
        monkeypatch.setattr(scene.engine.cache, "window", None)  # A reading would fail: none is needed here.
        scene.table.start_over(follow=False)
        for action in ("move(1)", "choose", "mark"):
            assert not await scene.app.run_action(action, scene.table)
        assert scene.app.screen.check_action("copy_run_id", ()) is False
        assert scene.app.screen is opened
        assert (scene.table.row, len(scene.table.marks)) == (first, 0)


@pytest.mark.parametrize(
    ("zone", "limits"),
    [
        ("UTC", ("2026-04-28", "2026-04-28")),
        ("America/St_Johns", ("2026-04-28T00:00-02:30", "2026-04-28T23:59:59.999999-02:30")),
    ],
)
def test_a_day_is_of_the_local_calendar(zone: str, limits: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its seconds is left out, and none of the next day's comes in."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    assert limits_of(date(2026, 4, 28)) == limits

    found = parse(f"since:{limits[0]} until:{limits[1]}", datetime(2026, 5, 1, tzinfo=UTC))
    since, until = present(found.filter.since), present(found.filter.until)
    assert not found.problems
    assert timedelta(days=1) - (until - since) <= timedelta(microseconds=1)
    assert since.astimezone().isoformat(timespec="minutes").startswith("2026-04-28T00:00")


def line(scene: Scene) -> str:
    return scene.app.screen.query_one(SearchInput).value


async def a_mistake_is_said_with_its_cure_and_the_rest_counts(scene: Scene) -> None:
    """At 80 columns as well."""
    await scene.press("slash", *"stauts:failed dark")
    assert "There is no stauts:. Did you mean status:?" in scene.text
    assert "10 of 60" in scene.text

    await scene.press("escape")
    assert line(scene) == ""
    await scene.press("slash", *"status:exploded", "enter")
    await scene.shows("There are: cancelled")


async def a_repository_and_a_time_are_chosen_from_sheets(scene: Scene) -> None:
    """Enter takes the best match, or a pattern with a star; tab marks several, and once more excludes.

    The line keeps what was written; what is not a valid time stays to be corrected.
    """
    for keys, chosen, found in (
        (("runs.repositories", "p", "s", "enter"), "repo:acme/payment-service", 12),
        (("runs.repositories", *"tools", "tab", "tab", "enter"), "-repo:gitlab:acme/tools", 48),
        (("b", *"agent/", "asterisk", "enter"), "branch:agent/*", 30),
    ):
        await scene.press("escape", *keys)
        assert line(scene) == chosen
        assert f"{found} of 60" in scene.text

    await scene.press("escape", "t", "j", "enter")
    assert line(scene) == "since:1h"
    await scene.press("t", "tab", "tab", *"2026-05-01", "enter")
    assert line(scene) == "since:1h until:2026-05-01"
    await scene.press("t", "tab", "x", "enter")
    assert "is not a valid time" in scene.text


async def a_name_that_is_taken_is_not_taken_again(scene: Scene) -> None:
    """Built-in views keep theirs, and cannot be forgotten."""
    await scene.press("runs.save_view", *"active", "enter")
    assert "built in has this name" in scene.text

    await scene.press("escape", "runs.views", "delete")
    assert "All is built in." in scene.toasts

    await scene.press("runs.views", "j", "enter")
    assert "[Active " in scene.text


async def every_count_leads_to_its_list(scene: Scene) -> None:
    """Tabs and the first line count; a click shows those runs, from any tab."""
    assert "[All 60] · Active 4 · Failed 24h 4 · Stuck 1 [+]" in scene.lines[3]
    assert " of 60" not in scene.text

    await scene.press("slash", *"dark-mode")
    await scene.press("enter")
    assert "[All• 60]" in scene.lines[3]
    assert "10 of 60" in scene.lines[3]

    await scene.pilot.click(offset=(scene.lines[0].index("○ 1 queued"), 0))
    await scene.settle()
    assert line(scene) == "status:queued"
    assert len(scene.rows) == 1

    await scene.press("2")
    await scene.pilot.click(offset=(scene.lines[0].index("failed 24h"), 0))
    await scene.settle()
    assert "[Failed 24h 4]" in scene.lines[3]
    assert len(scene.rows) == 4


async def what_is_typed_is_completed_from_the_cache(scene: Scene) -> None:
    """Offers stand below the line; down chooses, tab takes, and a click does both."""
    await scene.press("slash", *"repo:a")
    assert "▸ acme/api" in scene.text

    await scene.press("down", "tab")
    assert line(scene).startswith("repo:acme/")
    assert line(scene) != "repo:acme/api "

    await scene.press(*"st")
    await scene.pilot.click("SuggestionList", offset=(5, 0))
    await scene.settle()
    assert line(scene).endswith(" status:")

    await scene.press("escape")
    assert "▸ " not in scene.lines[5]


FACTS = (
    a_mistake_is_said_with_its_cure_and_the_rest_counts,
    a_repository_and_a_time_are_chosen_from_sheets,
    a_name_that_is_taken_is_not_taken_again,
    every_count_leads_to_its_list,
    what_is_typed_is_completed_from_the_cache,
    clearing_undoes_the_line_first_and_then_the_view,
    what_is_typed_counts_as_far_as_it_goes_and_is_exact_at_the_end,
    active_runs_can_be_kept_on_top,
    the_branch_of_the_run_under_the_cursor,
    a_line_with_a_mistake_is_not_kept_as_a_view,
    a_sheet_that_changes_nothing_leaves_the_line_as_it_was_typed,
)


async def test_runs_are_found(staged: Staged) -> None:
    """By what is typed, by the pickers, in views, and by counts and offers; by the mouse as by keys."""
    async with staged(SMALL) as scene:
        for fact in FACTS:
            if fact is every_count_leads_to_its_list:
                await scene.pilot.resize_terminal(*WIDE)
            await scene.to_all_runs()
            await fact(scene)


async def test_what_is_shown_becomes_a_view_and_is_there_next_time(staged: Staged, board: Lab) -> None:
    """With its order; the last view and order open the next console, before the service is asked."""
    async with staged() as scene:
        await scene.press("slash", *"branch:agent/* -status:completed")
        await scene.press("enter", "runs.order", "enter")
        await scene.press("runs.save_view", *"Agents", "enter")
        assert "[Agents" in scene.text
        remembered = scene.rows

        app = app_on(scene.app.settings, scene.clock, scene.engine)
        async with app.run_test(size=(140, 40)) as pilot:
            again = Scene(pilot, scene.engine, scene.clock)
            assert isinstance(pilot.app, RunwardenApp)
            assert pilot.app.session.first is not None
            assert pilot.app.session.first.total == len(remembered)
            await again.settle()
            assert "[Agents" in again.text
            assert again.rows == remembered
            assert "started ↑" in again.text

            await again.press("runs.views", "delete")
            assert "Deleted the view Agents. Press u to undo." in again.toasts[-1]
            assert "Agents" not in again.lines[3]
            await again.press("u")
            assert "[Agents" in again.lines[3]
            await again.press("runs.views", "delete", "]", "u")
            assert "Agents" not in again.lines[3], "something else was changed since"


async def test_the_cursor_stays_on_the_screen(staged: Staged, board: Lab) -> None:
    """From the last run of many, into a narrower list and back; nothing is called new that is not.

    It is on the first run, however many arrive; a move pins it to a run, and home ends that.
    """
    a_day(board, 300)
    async with staged(SMALL) as scene:
        screen = runs(scene)
        for line in ("status:completed", "status:failed", "repo:acme/web", "status:completed,failed"):
            await scene.press("G")
            last = screen.focused_run_id

            for text in (line, ""):
                screen.set_line(text)
                await scene.settle()
                assert scene.table.cursor in scene.table.visible_rows
                assert screen.focused_run_id is not None
                assert " new ↑" not in scene.text
            if line == "status:completed":
                assert screen.focused_run_id == last

        await scene.to_all_runs()
        later = itertools.count()

        async def arrive(*names: str) -> str | None:
            for name in names:
                board.put(name, "queued", created=MINUTES_INTO_THE_DAY + next(later) / 1000)
            await scene.sync()
            return screen.focused_run_id

        assert await arrive("run_a") == "run_a"
        assert await arrive(*(f"run_b{number:02}" for number in range(40))) == "run_b39"
        assert " new ↑" not in scene.text
        await scene.press("j", "k")
        assert await arrive("run_c") == "run_b39"
        await scene.press("g")
        assert screen.focused_run_id == "run_c"
        assert await arrive("run_d") == "run_d"
