"""When the console's own files cannot be used, every room says so, and what to do."""

from app.console.session.troubles import UNREADABLE
from app.engine.events import StorageFailed
from storage.ledger import DAMAGE_CURE
from tests.console.conftest import SMALL, Staged

BROKEN = "cache.sqlite3 is not a database. Delete it: it fills again."


async def test_no_room_waits_for_an_answer_that_cannot_be_kept(staged: Staged) -> None:
    """A room says neither "asking" nor "nothing yet", whether it was open when the storage failed or opens later."""
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


async def test_the_longest_cure_can_be_read_in_the_smallest_window(staged: Staged) -> None:
    """A damaged ledger has several, with the file's path and SQLite's verdict before them; all rows stay elsewhere."""
    path, verdict = (
        f"/home/someone/{'folder/' * 11}ledger.sqlite3",
        "row 17 missing from index actions_by_subject; " * 2,
    )
    async with staged(SMALL) as scene:
        await scene.press("2", "4", "1")
        await scene.ring(StorageFailed(f"The database {path} is damaged ({verdict}). {DAMAGE_CURE}"))
        for key in ("1", "4", "2"):
            await scene.press(key)
            assert UNREADABLE.title not in scene.text, "what was read before stays: facts with an age beat a notice"
            assert "see Health (2)" in scene.lines[-2]

        words = " ".join(" ".join(line.strip() for line in scene.lines).split())
        assert DAMAGE_CURE in words
