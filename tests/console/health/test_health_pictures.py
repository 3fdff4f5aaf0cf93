"""Pictures of the Health room in every state, at two sizes."""

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.records.activity import PollOutcome
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.health.conftest import Lived, report
from tests.run_board import Board

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


@SIZES
async def test_a_past(staged: Staged, picture: SnapshotAssertion, lived: Lived, size: tuple[int, int]) -> None:
    """Two hosts, incidents, a silence."""
    async with staged(size, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        await scene.sync()

        assert scene.app.export_screenshot() == picture


async def test_flapping(staged: Staged, picture: SnapshotAssertion, lived: Lived) -> None:
    """A host that comes and goes."""
    async with staged(SMALL, synced=False) as scene:
        await scene.press("2")
        await lived(scene)
        for number in range(7):
            scene.clock.move(seconds=40)
            status = "unreachable" if number % 2 == 0 else "ok"
            await scene.engine.cache.store_health(report(github="ok", gitlab=status), at=scene.clock())
        await answered(scene)

        assert scene.app.export_screenshot() == picture


async def test_hostile_hosts(staged: Staged, picture: SnapshotAssertion, board: Board) -> None:
    """Names, statuses, hosts and groups from somebody who means harm."""
    board.health = {
        "[red]x\x1b[2J": {"status": "[/b]\x9b2J" * 9, "host": "h\x1b]0;t\x07" * 30, "group": "\u202eg"},
        "g" * 400: {"status": "界" * 60, "host": "e\u0301" * 90},
    }
    async with staged(SMALL) as scene:
        await scene.press("2")

        assert scene.app.export_screenshot() == picture


async def answered(scene: Scene) -> None:
    """All is answered."""
    await scene.ended(PollOutcome("runs", scene.clock()), PollOutcome("health", scene.clock()))
    await scene.tick(seconds=1)
