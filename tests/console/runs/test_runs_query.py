"""The query of the runs table: how each way to change it changes it."""

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from app.console.sheets import ChoiceSheet, MarkPicker
from app.profiles import ViewSettings
from app.runs.query import parse
from app.runs.screen import RunsScreen
from app.runs.screen_pickers import DatesPicker, ValuePicker, ViewSaver, limits_of
from app.runs.screen_views import ALL, TableQuery
from storage.records import RunSort
from tests.console.conftest import Scene, Staged


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


async def a_line_that_is_left_by_the_mouse_means_what_it_says(scene: Scene) -> None:
    """As after enter: nothing goes on standing for all that contain it."""
    await scene.press("slash", *"repo:acme/payment")
    assert scene.table.count
    await scene.pilot.click("RunTable", offset=(20, 4))
    await scene.settle()

    assert runs(scene).table_query == TableQuery(line="repo:acme/payment")
    assert not scene.table.count
    assert scene.app.focused is scene.table


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


async def test_each_way_to_change_the_query(staged: Staged) -> None:
    """By keys, by typing, by the mouse and by sheets."""
    async with staged() as scene:
        await scene.prove(
            clearing_undoes_the_line_first_and_then_the_view,
            what_is_typed_counts_as_far_as_it_goes_and_is_exact_at_the_end,
            active_runs_can_be_kept_on_top,
            the_branch_of_the_run_under_the_cursor,
            a_line_that_is_left_by_the_mouse_means_what_it_says,
            a_sheet_that_changes_nothing_leaves_the_line_as_it_was_typed,
        )


async def test_keys_about_rows_do_nothing_while_the_rows_are_replaced(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enter in the search line waits for its own result, and only then the next enter opens a run."""
    async with staged() as scene:
        first, opened = scene.table.row, scene.app.screen
        monkeypatch.setattr(scene.engine.cache, "window", None)  # A reading would fail: none is needed here.
        scene.table.start_over(follow=False)
        for action in ("move(1)", "choose", "mark"):
            assert not await scene.app.run_action(action, scene.table)
        assert scene.app.screen.check_action("copy_run_id", ()) is False

        assert scene.app.screen is opened
        assert (scene.table.row, len(scene.table.marks)) == (first, 0)


async def test_sheets_write_into_the_query(staged: Staged) -> None:
    """In place of the terms that one is about, else at the end; a sheet that was left changes nothing.

    A view that was saved is on show at once; an order leaves the line as it is.
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


async def test_views_are_counted_from_indexes(staged: Staged) -> None:
    """A search of all runs is not made for a tab, until it is on show."""
    views = (ViewSettings("Words", "main"), ViewSettings("Web", "repo:acme/web"), ViewSettings("Branch", "branch:main"))
    async with staged((200, 40), changed={"views": views}) as scene:
        assert "[All 60] · Active 4 · Failed 24h 4 · Stuck 1 · Words · Web 12 · Branch" in scene.text
        runs(scene).show_view(next(view for view in runs(scene).views if view.name == "Words"))
        await scene.settle()
        assert f"[Words {scene.table.count}]" in scene.text


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


async def test_a_line_with_a_mistake_is_not_kept_as_a_view(staged: Staged) -> None:
    """Nor while it is typed; the notice says why. A correct line is kept as it was typed."""
    mistakes = {"status:exploded": "the status 'exploded'", "status:": "lacks its value", "result:fixed": "no result:"}
    async with staged(toasts=True) as scene:
        for line, refusal in mistakes.items():
            await scene.press("slash", *line, "runs.save_view")
            assert isinstance(scene.app.screen, RunsScreen)
            assert any(refusal in said for said in scene.toasts), line
            await scene.press("escape", "escape")

        await scene.press("slash", *"repo:acme/payment", "runs.save_view", *"Mine", "enter")
        assert [(view.name, view.query) for view in runs(scene).preferences.now.views] == [
            ("Mine", "repo:acme/payment")
        ]
