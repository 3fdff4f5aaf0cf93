"""The Inbox tab as it looks."""

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.errors import DatabaseDamagedError
from storage.state import State
from storage.state.opening import DAMAGE_CURE
from tests.console.conftest import SMALL, Staged, seen
from tests.console.inbox.conftest import HOSTILE, fail, inbox, keys
from tests.run_board import Board
from widgets.inbox import InboxTable


async def test_picture_of_a_full_one_and_of_an_empty_one(staged: Staged, picture: SnapshotAssertion) -> None:
    """With two marked, and after everything was dealt with."""
    async with inbox(staged, SMALL) as scene:
        await scene.press("j", "space", "space")
        await seen(scene, picture, "full-")
        await scene.press("asterisk", "e")
        assert keys(scene) == []
        await seen(scene, picture, "empty-")


async def test_picture_of_a_hostile_name(staged: Staged, picture: SnapshotAssertion, board: Board) -> None:
    """What a terminal would obey keeps to its own cells."""
    async with inbox(staged, SMALL, automated=False) as scene:
        data = {"platform": "github", "data": {"owner": "acme\x1b[2J", "repo": "re\u200bpo[b]"}}
        why = "\x1b[31mdied[/red]" * 20
        await fail(scene, board, "run_new", branch_name=HOSTILE, repository=data, failure_reason=why)
        scene.app.screen.query_one(InboxTable).seek(next(key for key in keys(scene) if "\x1b" in key))
        await scene.settle()
        await seen(scene, picture)


async def test_picture_of_a_broken_state(
    staged: Staged, picture: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is shown; that nothing can be put away is said, and no key does."""

    def fail(*_: object, **__: object) -> None:
        path = Path("~/.local/share/runwarden/acme-prod/state.sqlite3")
        raise DatabaseDamagedError(f"{path} is not a database. {DAMAGE_CURE}", path=path)

    monkeypatch.setattr(State, "open", fail)
    async with staged(SMALL) as scene:
        await scene.press("7", "e")
        assert keys(scene)
        assert scene.toasts[-1] == "Nothing can be put away: see below."
        await seen(scene, picture)
