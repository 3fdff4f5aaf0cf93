"""The line of keys offers what does something."""

from app.console.base import key_hints
from tests.console.conftest import Staged
from tests.lab import Lab


async def test_without_any_run_no_tab_offers_a_key_about_one(staged: Staged, board: Lab) -> None:
    """Before the first answer, and after one without a run or a code host; each list is all that is offered there."""
    board.runs.clear()
    board.health = {}
    offers = {"1": "n a / s", "2": "", "3": "n I p", "4": "t", "5": "n", "6": "", "7": ""}
    async with staged(synced=False) as scene:
        for tab, keys in (*offers.items(), *offers.items()):
            await scene.press(tab)
            assert [hint.key for hint in key_hints(scene.app.screen)] == [*keys.split(), ":", "?"], tab
            if tab == "7":
                await scene.sync()
