"""The console's shell: rooms, keys, palette, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.widget import Widget

from app.api.requests import CreateOrganization
from app.console.app import RunwardenApp
from app.console.base import key_actions
from app.console.messages import OpenRun
from app.profiles.load import parse
from app.runs.screen import RunsScreen
from app.runs.screen_run import RunScreen
from tests.console.automations.conftest import ONE
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.scenes import TOKEN_VARIABLE, SceneClock, settings_for
from tests.lab import Lab
from widgets.kit.line_text import LineText


async def test_help_names_every_key_of_the_screen(staged: Staged) -> None:
    """It is made from the bindings, so nothing can be missing; a key or a word filters it, escape clears the filter."""
    async with staged((100, 120)) as scene:
        expected = [each for each in key_actions(scene.app.screen) if each.keys]
        await scene.press("question_mark")

        for key_action in expected:
            assert key_action.does in scene.text
            assert key_action.keys[0] in scene.text

        await scene.press("slash", *"by status", "enter")
        assert "Filter by status" in scene.text
        assert "Start a run" not in scene.text
        await scene.press("slash", *"zzz", "enter")
        assert "No key found. Search the palette: press :." in scene.text
        await scene.press("escape")
        assert "Start a run on a repository" in scene.text
        await scene.press("escape")
        assert "On this screen" not in scene.text


async def test_a_tab_that_is_not_set_up_is_hidden_until_it_is(
    staged: Staged, tmp_path: Path, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key leads there all the same; an organization, or a rule, shows its tab for good.

    So does a token that may create organizations: the service is asked once.
    """
    async with staged() as scene:
        assert "Organizations" not in scene.lines[1]
        assert "Automations" not in scene.lines[1]
        await scene.press("3")
        assert "3 Organizations" in scene.lines[1]
        await scene.engine.actions.submit(CreateOrganization("ada@globex.example"))
        await scene.ring()
        await scene.press("1")
        assert "3 Organizations" in scene.lines[1]
    file = tmp_path / "config.toml"
    file.write_text(ONE, "utf-8")
    monkeypatch.setenv(TOKEN_VARIABLE, "token-of-the-scene")  # The engine before it took it.
    board.may_create = True
    board.requests.clear()
    changed = {"automations": parse(file, ONE).automations, "data_dir": tmp_path / "another"}
    async with staged(changed=changed) as scene:
        await scene.sync()
        assert "5 Automations" in scene.lines[1]
        assert "3 Organizations" in scene.lines[1]
        assert sum(request.path.endswith("/invitations") for request in board.requests) == 1


async def test_a_terminal_too_small_says_what_it_needs_until_it_grows(staged: Staged) -> None:
    """From the start or later, over a form as well; no key acts on what is not seen, and nothing typed is lost."""
    async with staged((40, 10)) as scene:
        await scene.press("n")
        assert [line.strip() for line in scene.lines if line.strip()] == ["40x10 is too small: 50x12 at least."]
        await scene.pilot.resize_terminal(80, 24)
        await scene.settle()
        assert len(scene.rows) > 1
        await scene.press("n", "x")
        for size in ((80, 11), (49, 24), (80, 24)):
            await scene.pilot.resize_terminal(*size)
            await scene.settle()
            assert ("New run" in scene.text, "too small" in scene.text) == (size == (80, 24), size != (80, 24))
        assert "x" in scene.app.screen.values.values()  # type: ignore[attr-defined]  # a form's


async def test_sixteen_colours_have_their_own_theme(
    board: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soft hues would all be the same grey there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")
    themes = {"runwarden": "runwarden-16", "runwarden-light": "runwarden-light-16", "no such theme": "runwarden-16"}
    for wanted, theme in themes.items():
        settings = settings_for(board.base_url, tmp_path, theme=wanted)
        app = RunwardenApp(settings, settings.profile(), asyncio.Event().wait, None, SceneClock())  # type: ignore[arg-type]

        assert app.theme == theme


ROWS = "RunTable, RunPane, LineTable, LeadList, RuleTable, Conversation, ReplyBox, LogView, HeaderBar, #bottom"
"""What a toast covers on no screen."""


async def test_a_toast_covers_neither_rows_nor_the_reply_nor_the_keys(staged: Staged) -> None:
    """However long it is, it takes the line of the tabs and the one below; its key is in the bottom line.

    Over a dialog it is in the last line, and below the dialog not once more.
    """
    async with staged(SMALL, toasts=True) as scene:
        for keys in ("1", "2", "4", "6", ("1", "enter"), "l"):
            await scene.press(*keys)
            toast = await said(scene, scene.tick)
            covered = [each for each in scene.app.screen.query(ROWS) if each.region and each.display]
            assert covered
            assert not [each for each in covered if toast.region.overlaps(each.region)], keys
            assert scene.lines[toast.region.y].lstrip("▌ ").startswith("A long notice.")
            assert "N notice" in scene.lines[-1]

        for keys, dialog in ((("1", "n"), "FormDialog"), (("escape", "X"), "#picker")):
            await scene.press(*keys)
            toast = await said(scene, scene.settle)
            below_it, top = scene.app.screen_stack[:-1], scene.app.screen
            assert "A long notice" in str(toast.render())
            assert not any(screen.query_one("ToastRack").display for screen in below_it)
            for name in (dialog, "HeaderBar", "TabBar"):
                covers = (top if name == dialog else scene.app.screen_stack[0]).query_one(name).region
                assert not toast.region.overlaps(covers), name


async def said(scene: Scene, answered: Callable[[], Awaitable[None]]) -> Widget:
    """The toast on show after a long notice."""
    scene.app.session.notify("A long notice. " * 20)
    await answered()
    scene.text  # noqa: B018 — lays out what is on show
    (toast,) = [toast for toast in scene.app.screen.query("Toast") if toast.region]
    return toast


async def test_a_key_opens_what_a_toast_is_about(staged: Staged) -> None:
    """The run, or the row on another screen; if it is about nothing in particular, all of it is shown.

    What reads for a screen ends before the screen goes: a late result would look for parts that are gone already.
    """
    async with staged(SMALL) as scene:
        scene.app.notify("branch \x1b[2J gone")
        assert "\x1b" not in scene.app.session.notices[0].text
        scene.app.session.notices.clear()
        await scene.press("N")
        assert scene.toasts[-1] == "There was no notice yet."

        scene.app.session.notify("It ended.", opens=OpenRun("run_01JX00017F3KQ9ZT2M1879"))
        await scene.press("N")
        page = scene.app.screen
        assert isinstance(page, RunScreen)

        async def read_on_and_on() -> None:
            while True:
                page.query_one(LineText)
                await asyncio.sleep(0)

        reading = page.run_worker(read_on_and_on)
        await scene.pilot.press("escape")
        await scene.settle()
        assert reading.is_cancelled
        assert isinstance(scene.app.screen, RunsScreen)

        await scene.press("f")
        await scene.tick(seconds=10)
        await scene.press("N")
        assert "is:followed" in scene.text

        scene.app.session.notify("Word after word. " * 20 + "The end.")
        await scene.press("N")
        await scene.shows("Notices", "The end.")
        await scene.press("2")
        assert "is:followed" in scene.text
