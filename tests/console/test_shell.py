"""The console's shell: the list of keys, and notices."""

import asyncio

from app.console.base import key_actions
from app.console.session import OpenRun
from app.runs.screen import RunsScreen
from app.runs.screen_run import RunScreen
from tests.console.conftest import SMALL, Staged
from widgets.kit.line_text import LineText


async def test_help_names_every_key_of_the_screen(staged: Staged) -> None:
    """Help is generated from the bindings, so nothing can be missing; a word filters it."""
    async with staged((100, 120)) as scene:
        expected = [each for each in key_actions(scene.app.screen) if each.keys]
        await scene.press("question_mark")

        for key_action in expected:
            assert key_action.does in scene.text
            assert key_action.keys[0] in scene.text

        await scene.press("slash", *"by status", "enter")
        assert "Filter by status" in scene.text
        assert "Start a run" not in scene.text


async def test_a_key_opens_a_toasts_subject(staged: Staged) -> None:
    """The key opens the run, or the toast's full text if it concerns nothing else.

    A screen's reads stop before the screen closes, since a late result would look for widgets that no longer exist.
    """
    async with staged(SMALL) as scene:
        scene.app.notify("branch \x1b[2J gone")
        assert "\x1b" not in scene.app.session.notices[0].text
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

        scene.app.session.notify("Word after word. " * 20 + "The end.")
        await scene.press("N")
        await scene.shows("Notices", "The end.")
