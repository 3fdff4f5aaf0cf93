"""Pictures of the strip and the list, at two sizes."""

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import SMALL, WIDE, Staged
from tests.console.follow.conftest import Mover
from tests.console.follow.test_follow import followed

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


@SIZES
async def test_strip(staged: Staged, picture: SnapshotAssertion, move: Mover, size: tuple[int, int]) -> None:
    """One that goes on, one past its usual time, one that has ended, and more."""
    async with staged(size) as scene:
        await followed(scene, "run_go1", "run_go5", "run_go0", "run_go3")
        scene.clock.move(minutes=1)
        await move(scene, "run_go0", "failed")
        await scene.tick(seconds=1)

        assert scene.app.export_screenshot() == picture


async def test_list(staged: Staged, picture: SnapshotAssertion, move: Mover) -> None:
    """All of them."""
    async with staged(SMALL) as scene:
        await followed(scene, "run_go1", "run_go5", "run_go0", "run_go3", "run_gone")
        await move(scene, "run_go0", "completed")
        await scene.press("F", "j")

        assert scene.app.export_screenshot() == picture


async def test_empty_list(staged: Staged, picture: SnapshotAssertion) -> None:
    """Nothing is followed."""
    async with staged(SMALL) as scene:
        await scene.press("F")

        assert scene.app.export_screenshot() == picture
