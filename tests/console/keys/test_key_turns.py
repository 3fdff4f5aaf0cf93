"""Keys that come faster than they are answered, as on a slow line."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.widgets import Input

from app.console.app import RunwardenApp
from app.console.runs.views import first_picture
from app.console.session import STILL_OPENING
from app.engine import Engine
from storage.records import RunFilter, RunSort
from tests.console.conftest import WIDE, Scene, Staged
from tests.console.keys.conftest import at_once
from tests.console.quiet import answered
from tests.console.scenes import SceneClock, engine_on, settings_for
from tests.run_board import Board
from tests.waiting import until
from widgets.forms.field import FormField
from widgets.runs.table import RunTable

ANY = (RunFilter(), RunSort())


def typed(scene: Scene, field: str) -> str:
    """What stands in a form's field; "": there is no such field, yet."""
    return next((found.value for found in scene.app.screen.query(f"#field-{field}").results(FormField)), "")


async def test_a_search_is_typed_in_one_go(staged: Staged) -> None:
    """The letters behind the slash are letters, not keys of the room."""
    async with staged() as scene:
        at_once(scene, "slash", *"dark")
        await until(lambda: isinstance(scene.app.focused, Input) and scene.app.focused.value == "dark")
        await scene.settle()

        assert "10 of 60" in scene.text
        assert len(scene.app.screen_stack) == 1


async def test_a_key_behind_a_search_is_no_part_of_it(staged: Staged) -> None:
    """Enter goes back to the rows before the next key is answered."""
    async with staged() as scene:
        at_once(scene, "slash", *"dark", "enter", "n")
        await until(lambda: len(scene.app.screen_stack) == 2)
        await scene.press("escape")

        assert "10 of 60" in scene.text


async def test_a_form_gets_what_is_typed_behind_its_key(staged: Staged) -> None:
    """From the first letter on, although its draft is read first; behind a tab, the next field gets it."""
    async with staged() as scene:
        for key, field, text in (("n", "instructions", "jkNq"), ("c", "instructions", "jk?q"), ("a", "name", "qqq")):
            at_once(scene, key, *text)
            await until(lambda field=field, text=text: len(typed(scene, field)) >= len(text))
            await scene.settle()

            assert typed(scene, field) == text
            await scene.press("escape")

        await scene.press("a", "ctrl+n")
        at_once(scene, *"nightly", "tab", *"acme/api", "tab", *"topic", "tab")
        await until(lambda: typed(scene, "branch_name") == "topic")

        assert [typed(scene, field) for field in ("name", "repository", "branch_name")] == [
            "nightly",
            "acme/api",
            "topic",
        ]


async def test_a_sheet_gets_the_keys_behind_the_one_that_opens_it(staged: Staged) -> None:
    """Escape closes the sheet, and the next digit goes to the next room."""
    async with staged() as scene:
        at_once(scene, "question_mark", "escape", "2", "question_mark", "q", "1", "j", "j")
        await until(lambda: [table.request(*ANY).cursor_index for table in scene.app.screen.query(RunTable)] == [2])


async def test_one_that_takes_long_does_not_hold_back_the_others_for_ever(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the screen that waits for something leaves the keys to the others after a while."""
    never = asyncio.Event()

    async def wait(*_: Any) -> None:
        await never.wait()

    async with staged() as scene:
        monkeypatch.setattr(RunTable, "on_key", wait, raising=False)
        at_once(scene, "#")
        search = scene.app.screen.query_one(Input)
        search.focus()
        await until(lambda: scene.app.focused is search)
        at_once(scene, *"dark")
        try:
            await until(lambda: search.value == "dark")
        finally:
            never.set()


async def test_a_key_that_is_still_under_way_when_the_console_closes_presses_nothing(staged: Staged) -> None:
    """Neither one that no part of the screen has met yet, nor one that a part hands on after the last screen went."""
    async with staged() as scene:
        late = [events.Key("q", "q"), events.Key("q", "q")]
        late[1]._forwarded = True
    for key in late:
        await scene.app.on_event(key)

    assert [key._stop_propagation for key in late] == [True, True]


@asynccontextmanager
async def opening(tmp_path: Path, engine_is_there: asyncio.Event, board: Board | None = None) -> AsyncIterator[Scene]:
    """A console whose engine opens when it is told; of the runs on the board, the first rows are cached."""
    settings = settings_for("http://localhost:1/v1" if board is None else board.base_url, tmp_path)
    clock = SceneClock()

    async with engine_on(settings, clock) as engine:
        if board is not None:
            await engine.refresh()

        async def opened() -> Engine:
            await engine_is_there.wait()
            return engine

        first = first_picture(settings, settings.profile(), clock())
        app = RunwardenApp(settings, settings.profile(), opened, first, clock)
        async with app.run_test(size=WIDE) as pilot:
            yield Scene(pilot, engine, clock)
            engine_is_there.set()


async def test_keys_typed_before_the_engine_is_there_are_answered_in_order(tmp_path: Path) -> None:
    """Neither is one that needs the engine refused, nor one behind it answered by the screen before."""
    async with opening(tmp_path, is_there := asyncio.Event()) as scene:
        at_once(scene, "4", "question_mark")
        await answered(scene.app)
        assert scene.app.current_mode == "runs"
        is_there.set()
        await scene.shows("Insights", "On this screen", "The last 24 hours")

        assert not scene.toasts


async def test_a_search_waits_for_the_engine(tmp_path: Path, board: Board) -> None:
    """With all keys behind it, which would act on runs that it has not found."""
    async with opening(tmp_path, is_there := asyncio.Event(), board) as scene:
        at_once(scene, "j", "slash", *"dark", "j", "enter")
        await until(lambda: scene.table.request(*ANY).cursor_index == 1)
        await answered(scene.app)
        assert isinstance(scene.app.focused, RunTable)
        is_there.set()
        await until(lambda: isinstance(scene.app.focused, RunTable) and "darkj" in scene.text)


async def test_the_cursor_moves_before_the_engine_is_there(tmp_path: Path, board: Board) -> None:
    """Over the rows that were painted first, to the last of them; it stays on its run when all can be read."""
    async with opening(tmp_path, is_there := asyncio.Event(), board) as scene:
        at_once(scene, "j", "j", "down", "k")
        await until(lambda: scene.table.request(*ANY).cursor_index == 2)
        at_once(scene, "G", "pageup", "g", "pagedown", "n", "j")
        await answered(scene.app)
        place = scene.table.request(*ANY).cursor_index
        assert place > 2
        assert len(scene.rows) > 20
        is_there.set()
        await until(lambda: len(scene.app.screen_stack) == 2)

        await scene.press("escape")
        assert scene.table.request(*ANY).cursor_index == place
        assert STILL_OPENING not in scene.toasts


async def test_the_list_of_keys_opens_before_the_engine_is_there(tmp_path: Path) -> None:
    """And closes again, moves the cursor, and leaves what needs the engine for later."""
    async with opening(tmp_path, asyncio.Event()) as scene:
        at_once(scene, "question_mark")
        await until(lambda: "On this screen" in scene.text)
        at_once(scene, "j", "escape", "j", "n", "question_mark")
        await until(lambda: len(scene.app.screen_stack) == 1)
        await answered(scene.app)

        assert len(scene.app.screen_stack) == 1
        assert not scene.toasts


async def test_a_key_that_repeats_does_not_keep_the_engine_from_opening(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come faster than it is answered, for as long as it is held down."""
    monkeypatch.setattr("app.console.base.app.PATIENCE_S", 0.0)
    async with opening(tmp_path, is_there := asyncio.Event(), board) as scene:
        is_there.set()

        def is_open() -> bool:
            at_once(scene, *("jk" * 20))
            return scene.app.session is not None and scene.app.session.engine is not None

        await until(is_open)


async def test_keys_do_not_wait_for_ever_for_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token may be asked for by another program: after a while a key is told so."""
    monkeypatch.setattr("app.console.base.app.HOLD_S", 0.0)
    async with opening(tmp_path, asyncio.Event()) as scene:
        at_once(scene, "4")
        await until(lambda: scene.toasts == [STILL_OPENING])


async def test_the_console_can_be_left_from_the_list_of_keys_while_it_opens(tmp_path: Path) -> None:
    """A sheet hides the bindings of the app, but not this one."""
    async with opening(tmp_path, asyncio.Event()) as scene:
        at_once(scene, "question_mark")
        await until(lambda: "On this screen" in scene.text)
        at_once(scene, "ctrl+q")
        await until(lambda: not scene.app.is_running)


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_the_console_can_be_left_while_it_opens(tmp_path: Path, key: str) -> None:
    """At once."""
    async with opening(tmp_path, asyncio.Event()) as scene:
        at_once(scene, key)
        await until(lambda: not scene.app.is_running)
