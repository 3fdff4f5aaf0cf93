"""When the console's own files cannot be used, every screen says so, and how to fix it."""

from app.console.troubles import UNREADABLE
from app.engine.events import StorageFailed
from tests.console.conftest import SMALL, Staged

BROKEN = "cache.sqlite3 is not a database. Delete it: it fills again."


async def test_no_screen_waits_for_an_answer_that_cannot_be_stored(staged: Staged) -> None:
    """No screen says "asking" or "nothing yet", whether it was open when the storage failed or opens later."""
    async with staged(SMALL, synced=False) as scene:
        await scene.press("2", "4", "6", "1")
        await scene.ring(StorageFailed(BROKEN))
        for key in ("1", "2", "3", "4", "5", "6", "7"):
            await scene.press(key)

            text = scene.text
            assert "The answers cannot be stored: see Health (2)" in text
            assert (UNREADABLE.title in text, "Delete it" in text) == (key != "2", key == "2")
            assert "asking" not in text
            assert "yet" not in text
