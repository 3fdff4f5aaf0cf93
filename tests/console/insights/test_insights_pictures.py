"""How the Insights room looks."""

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.records import PollOutcome
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


@SIZES
async def test_picture_of_a_month(
    staged: Staged, picture: SnapshotAssertion, empty_board: Board, size: tuple[int, int]
) -> None:
    """Thirty bars."""
    async with staged(size) as scene:
        await show(scene, "m")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_picture_of_tables(
    staged: Staged, picture: SnapshotAssertion, empty_board: Board, size: tuple[int, int]
) -> None:
    """Numbers."""
    async with staged(size) as scene:
        await show(scene, "t")

        assert scene.app.export_screenshot() == picture


async def test_picture_in_the_colour_blind_theme(
    staged: Staged, picture: SnapshotAssertion, empty_board: Board
) -> None:
    """The colour-blind theme, in which shapes carry as much as hues."""
    async with staged(WIDE, theme="runwarden-colour-blind") as scene:
        await show(scene)

        assert scene.app.export_screenshot() == picture


async def test_picture_of_stale_figures(staged: Staged, picture: SnapshotAssertion, empty_board: Board) -> None:
    """The link is down; the figures are what is known."""
    async with staged(SMALL) as scene:
        await show(scene)
        scene.clock.move(minutes=12)
        await scene.engine.cache.record_poll(PollOutcome("runs", scene.clock(), "unreachable", "Connection refused"))
        scene.app._vitals_reader.ask()
        await scene.settle()
        await scene.tick(seconds=5)

        assert scene.app.export_screenshot() == picture


async def test_picture_of_nothing(staged: Staged, picture: SnapshotAssertion, empty_board: Board) -> None:
    """A service without runs."""
    async with staged(SMALL) as scene:
        await scene.press("4")

        assert scene.app.export_screenshot() == picture
