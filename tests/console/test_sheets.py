"""What lies over a room can be left, and what it asks answered, without a keyboard."""

import asyncio
import re
from pathlib import Path
from typing import Any

from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import TextArea

from app.actions.screen_form import ActionForm
from app.actions.screen_many import ManyForm
from app.actions.screen_resolve import ResolveForm
from app.automations.screen_sheets import ApprovalsSheet
from app.console.sheets import ConfirmSheet
from app.runs.screen_export import ExportScreen
from app.runs.screen_pickers import ViewSaver
from tests.console.conftest import SHEETS, SMALL, Scene, Staged

CORNER = (1, 22)
"""Of the screen: no sheet reaches it."""
MIDDLE = (40, 11)


async def click(scene: Scene, x: int, y: int) -> None:
    await scene.pilot.click(offset=(x, y))
    await scene.settle()


async def test_a_click_beside_what_lies_over_a_room(staged: Staged) -> None:
    """A sheet is closed, as by escape; a form has a button for that, and what was typed is a draft then."""
    async with staged(SMALL) as scene:
        for keys in SHEETS[::2]:
            await scene.press("1", *keys.split())
            sheet = scene.app.screen
            assert len(scene.app.screen_stack) == 2, keys
            box = next(each.region for each in sheet.query(Widget) if each.region.contains(*MIDDLE))
            await click(scene, box.x + 1, box.y)
            assert scene.app.screen is sheet, keys

            await click(scene, *CORNER)
            assert len(scene.app.screen_stack) == 1, keys
        await scene.press("1")
        assert "All 60]" in scene.text

        await scene.press("c", *"Go on.")
        await click(scene, 0, 10)
        assert scene.app.screen.query_one(TextArea).text == "Go on."
        y, x = next((y, line.index("Close esc")) for y, line in enumerate(scene.lines) if "Close esc" in line)
        await click(scene, x + 4, y)
        assert len(scene.app.screen_stack) == 1
        await scene.press("c")
        assert scene.app.screen.query_one(TextArea).text == "Go on."


def test_enter_does_nothing_that_cannot_be_undone() -> None:
    """In no dialog does it the same as ctrl+s, which is the key that sends, replaces and destroys."""

    def bound(dialog: type[ModalScreen[Any]], key: str) -> set[str]:
        each = Binding.make_bindings(dialog.BINDINGS)
        return {binding.action for binding in each if binding.key == key}

    def below(kind: type[ModalScreen[Any]]) -> list[type[ModalScreen[Any]]]:
        return [kind, *(each for below_it in kind.__subclasses__() for each in below(below_it))]

    dialogs = [each for each in below(ModalScreen) if each.__module__.startswith("app.")]
    deciding = {each for each in dialogs if bound(each, "ctrl+s")}

    assert {ActionForm, ApprovalsSheet, ConfirmSheet, ExportScreen} <= deciding
    assert {ManyForm, ResolveForm, ViewSaver} <= deciding
    assert not {each.__name__ for each in dialogs if bound(each, "ctrl+s") & bound(each, "enter")}


async def test_two_exports_never_write_the_same_file(staged: Staged, tmp_path: Path) -> None:
    """A second one, from the same sheet or another, is told to wait; another file is written at the same time."""
    turns = {name: asyncio.Event() for name in ("one.csv", "two.csv")}
    written: list[str] = []

    async def write(path: Path) -> str:
        await turns[path.name].wait()
        written.append(path.name)
        return f"written to {path.name}"

    async with staged(SMALL) as scene:

        async def export(name: str, *, enters: int = 1) -> None:
            scene.app.push_screen(ExportScreen("Export", tmp_path / name, write))
            await scene.pilot.pause()
            await scene.pilot.press(*["enter"] * enters)

        await export("one.csv", enters=2)
        assert "is being written" in scene.text
        await scene.pilot.press("escape")
        await export("one.csv")
        assert "is being written" in scene.text
        await scene.pilot.press("escape")
        await export("two.csv")
        for turn in turns.values():
            turn.set()
        await scene.settle()

    assert sorted(written) == ["one.csv", "two.csv"]


async def test_a_dialog_shows_its_keys_however_low_the_terminal_is(staged: Staged) -> None:
    """The facts of a confirmation scroll above them; of a form's buttons, those that send are seen in each phase."""
    async with staged((50, 12)) as scene:
        await scene.press(*["space"] * 6, "X")
        assert isinstance(scene.app.screen, ConfirmSheet)
        assert "ctrl+s Cancel" in scene.text
        assert "esc Keep" in scene.text
        await scene.press(*["j"] * 30)
        assert "nothing of this turn is pushed." in " ".join(re.findall(r"[\w.]+", scene.text))
        assert "ctrl+s Cancel" in scene.text

        await scene.to_all_runs()
        await scene.press("n", *"Fix it")
        assert "Preview ^s" in scene.text
        await scene.press("ctrl+s")
        assert "Send ^s" in scene.text
        await scene.press("ctrl+s")
        assert "Open run enter Close esc" in " ".join(scene.text.split())
