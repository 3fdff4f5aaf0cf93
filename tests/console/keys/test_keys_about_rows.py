"""Keys that come before the rows that they are about."""

import asyncio
from typing import Any

import pytest
from textual.widgets import Input

from app.console.runs.screen import RunsScreen
from storage.records import RunFilter, RunSort
from tests.console.activity.test_activity_room import room
from tests.console.activity.test_activity_room import table as activity
from tests.console.conftest import DEADLINE_S, SMALL, Disk, Scene, Staged
from tests.console.inbox.conftest import inbox, keys
from tests.console.keys.conftest import at_once
from tests.console.quiet import answered
from tests.waiting import until
from widgets.activity.table import ActivityTable
from widgets.runs.table import RunTable

STUCK = 5
"""The index of the run that is stuck."""
ROWS_S = "app.console.base.app.ROWS_S"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine rows may take longer than keys wait for them."""
    monkeypatch.setattr(ROWS_S, DEADLINE_S)


def gated(monkeypatch: pytest.MonkeyPatch, reads: Any, name: str) -> asyncio.Event:
    """Let this way of reading wait until the event is set."""
    may_read, read = asyncio.Event(), getattr(reads, name)

    async def reading(*arguments: Any, **options: Any) -> Any:
        await may_read.wait()
        return await read(*arguments, **options)

    monkeypatch.setattr(reads, name, reading)
    return may_read


def is_on_rows(scene: Scene) -> bool:
    return len(scene.app.screen_stack) == 1 and isinstance(scene.app.focused, RunTable | ActivityTable)


def run_on_show(scene: Scene) -> str:
    return scene.app.screen.focused_run_id or ""  # type: ignore[attr-defined]


async def test_enter_behind_a_search_opens_a_run_that_it_found(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the search takes; the rows on show until then are others."""
    async with staged() as scene:
        await scene.press("slash", *"dark", "enter")
        first = run_on_show(scene)
        await scene.press("escape", "g")
        assert run_on_show(scene) != first

        may_read = gated(monkeypatch, scene.engine.cache, "first_rows")
        at_once(scene, "slash", *"dark", "enter", "enter")
        await until(lambda: is_on_rows(scene))
        await answered(scene.app)
        assert len(scene.app.screen_stack) == 1
        may_read.set()
        await until(lambda: len(scene.app.screen_stack) == 2)

        assert run_on_show(scene) == first


async def test_the_cursor_moves_over_the_rows_of_the_query_behind_it(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the run that it is on; the query before found only this one."""
    async with staged() as scene:
        await scene.press("left_square_bracket")
        assert len(scene.rows) == 1
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "right_square_bracket", "j", "j", "j")
        await answered(scene.app)
        may_read.set()
        await scene.settle()

        assert scene.table.request(RunFilter(), RunSort()).cursor_index == STUCK + 3


async def test_enter_behind_a_jump_opens_the_run_there(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last row is not loaded yet."""
    async with staged(SMALL) as scene:
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "G", "enter")
        await answered(scene.app)
        assert len(scene.app.screen_stack) == 1
        may_read.set()
        await until(lambda: len(scene.app.screen_stack) == 2)

        (last,) = await scene.engine.cache.rows(RunFilter(), RunSort(), offset=59, limit=1)
        assert run_on_show(scene) == last.run_id


async def test_keys_that_are_about_no_rows_do_not_wait(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tabs and of the list of keys."""
    async with staged() as scene:
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "right_square_bracket", "question_mark")
        await until(lambda: "On this screen" in scene.text)
        at_once(scene, "escape", "2")
        await until(lambda: scene.app.current_mode == "health")
        may_read.set()


async def test_a_search_that_fails_holds_no_key_back(staged: Staged, disk: Disk) -> None:
    """The rows before it are still on show."""
    async with staged() as scene:
        disk.fails = True
        at_once(scene, "right_square_bracket", "j")
        await until(lambda: scene.table.request(RunFilter(), RunSort()).cursor_index == 1)


async def test_no_key_waits_for_ever(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while it is dropped, and the console says so: the rows that it is about are not known."""
    monkeypatch.setattr(ROWS_S, 0.0)
    async with staged() as scene:
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "right_square_bracket", "enter")
        await until(lambda: any("not answered" in said for said in scene.toasts))
        may_read.set()
        await scene.settle()

        assert len(scene.app.screen_stack) == 1


async def test_a_query_that_takes_long_can_be_replaced_and_given_up(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are no longer wanted then."""
    async with staged() as scene:
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, *["right_square_bracket"] * 3, "escape", "slash", *"dark")
        await until(lambda: isinstance(scene.app.focused, Input) and scene.app.focused.value == "dark")
        may_read.set()


async def test_a_key_is_not_answered_on_another_tab(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user clicks on one while the key waits."""
    async with inbox(staged) as scene:
        await scene.press("1")
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "right_square_bracket", "space")
        await answered(scene.app)
        await scene.app.run_action("tab('inbox')")
        may_read.set()
        await scene.settle()

        assert scene.app.current_mode == "inbox"
        assert "marked" not in scene.text


async def test_keys_on_groups_are_about_the_lines_that_folding_leaves(staged: Staged) -> None:
    """Of all groups unfolded, the second line is the first run of the first group."""
    async with staged() as scene:
        await scene.press("number_sign", "g")
        at_once(scene, "Z", "j", "enter")
        await until(lambda: len(scene.app.screen_stack) == 2)


@pytest.mark.parametrize("keys", ["G", "jjj", "  j"])
async def test_the_rows_of_a_search_are_all_that_it_finds(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    """Not those that it has found so far: the cursor goes beyond them."""
    async with staged() as scene:
        cache = scene.engine.cache
        first_rows = cache.first_rows

        async def few(*arguments: Any, **options: Any) -> Any:
            return (await first_rows(*arguments, **options))[:2]

        monkeypatch.setattr(cache, "first_rows", few)
        may_read = gated(monkeypatch, cache, "rows")
        pressed = [key.replace(" ", "space") for key in keys]
        at_once(scene, "slash", *"dark", "enter", *pressed, "enter")
        await until(lambda: is_on_rows(scene))
        await answered(scene.app)
        may_read.set()
        await until(lambda: len(scene.app.screen_stack) == 2)
        opened = run_on_show(scene)
        await scene.press("escape", "g", "escape" if " " in keys else "g", *pressed)

        assert run_on_show(scene) == opened


async def test_a_key_behind_an_empty_view_is_about_the_next_one(staged: Staged) -> None:
    """Its action is possible again once the rows are there."""
    async with staged() as scene:
        await scene.press("slash", *"zzz", "enter")
        assert "No run matches" in scene.text
        at_once(scene, "right_square_bracket", "y")
        await until(lambda: bool(scene.app.clipboard))

        assert scene.app.clipboard == run_on_show(scene)


async def test_keys_that_wait_in_vain_do_not_wait_one_after_the_other(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key that gives the reading up is answered behind the first of them."""
    monkeypatch.setattr(ROWS_S, 0.0)
    async with staged() as scene:
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "right_square_bracket", "j", "j", "j", "slash", *"dark")
        await until(lambda: isinstance(scene.app.focused, Input) and scene.app.focused.value.endswith("dark"))
        may_read.set()

        assert len([said for said in scene.toasts if "not answered" in said]) == 1


async def test_a_key_that_waited_on_a_tab_that_was_left_is_not_reported(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over after the click on another one, whose keys are answered then."""
    is_over = asyncio.Event()

    async def wait_in_vain() -> None:
        await is_over.wait()
        raise TimeoutError

    async with staged() as scene:
        monkeypatch.setattr(RunsScreen, "awaited_rows", lambda _, action: wait_in_vain if action == "choose" else None)
        at_once(scene, "enter")
        await answered(scene.app)
        await scene.app.run_action("tab('health')")
        is_over.set()
        at_once(scene, "question_mark")
        await until(lambda: "On this screen" in scene.text)

        assert not [said for said in scene.toasts if "not answered" in said]


async def test_a_key_behind_a_jump_acts_at_once_where_nothing_is_read(staged: Staged, disk: Disk) -> None:
    """The run there could not be read."""
    async with staged(SMALL) as scene:
        disk.fails = True
        await scene.press("G")
        at_once(scene, "enter", "slash")
        await until(lambda: isinstance(scene.app.focused, Input))

        assert not [said for said in scene.toasts if "not answered" in said]


async def test_enter_behind_a_search_of_the_writes_opens_one_that_it_found(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As among the runs."""
    async with room(staged) as scene:
        first = activity(scene).item
        assert first is not None
        may_read = gated(monkeypatch, scene.engine.ledger, "journal")
        at_once(scene, "slash", *"globex", "enter", "enter")
        await until(lambda: is_on_rows(scene))
        await answered(scene.app)
        assert scene.app.current_mode == "activity"
        may_read.set()
        await until(lambda: scene.app.current_mode == "organizations")


async def test_a_key_that_is_pressed_twice_puts_two_items_away(staged: Staged) -> None:
    """The second one is about the list without the first item."""
    async with inbox(staged) as scene:
        before = keys(scene)
        at_once(scene, "e", "e")
        await until(lambda: len(keys(scene)) == len(before) - 2)
        await scene.settle()

        assert keys(scene) == before[2:]


async def test_a_key_on_the_pane_is_about_the_run_of_the_new_rows(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the focus is."""
    async with staged() as scene:
        await scene.press("left_square_bracket")
        stuck = run_on_show(scene)
        await scene.press("right_square_bracket", "g", "tab")
        assert run_on_show(scene) != stuck
        may_read = gated(monkeypatch, scene.engine.cache, "window")
        at_once(scene, "left_square_bracket", "y")
        await answered(scene.app)
        may_read.set()
        await until(lambda: scene.app.clipboard == stuck)


async def test_a_run_that_was_started_comes_into_view(staged: Staged) -> None:
    """From further down as well, so that enter opens it."""
    async with staged(SMALL) as scene:
        (first,) = await scene.engine.cache.rows(RunFilter(), RunSort(), offset=0, limit=1)
        await scene.press("G")
        scene.app.screen.table_loader.seek(first.run_id)  # type: ignore[attr-defined]
        await scene.settle()

        assert scene.table.shows_cursor
        assert run_on_show(scene) == first.run_id
