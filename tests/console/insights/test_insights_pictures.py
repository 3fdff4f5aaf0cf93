"""How the Insights room looks."""

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import SMALL, WIDE, Staged
from tests.console.insights.month import show
from tests.run_board import Board

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


@SIZES
async def test_picture(staged: Staged, picture: SnapshotAssertion, empty_board: Board, size: tuple[int, int]) -> None:
    """A week."""
    async with staged(size) as scene:
        await show(scene)

        assert scene.app.export_screenshot() == picture


async def test_picture_of_a_month(staged: Staged, picture: SnapshotAssertion, empty_board: Board) -> None:
    """Thirty bars."""
    async with staged(WIDE) as scene:
        await show(scene, "m")

        assert scene.app.export_screenshot() == picture


async def test_picture_of_tables(staged: Staged, picture: SnapshotAssertion, empty_board: Board) -> None:
    """Numbers."""
    async with staged(SMALL) as scene:
        await show(scene, "t")

        assert scene.app.export_screenshot() == picture


async def test_picture_in_the_colour_blind_theme(
    staged: Staged, picture: SnapshotAssertion, empty_board: Board
) -> None:
    """The colour-blind theme, in which shapes carry as much as hues."""
    async with staged(WIDE, theme="runwarden-colour-blind") as scene:
        await show(scene)

        assert scene.app.export_screenshot() == picture
