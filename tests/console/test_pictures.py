"""Pictures of every room in every state, at two sizes, under a clock that stands still."""

import pytest
from syrupy.assertion import SnapshotAssertion

from storage.records.link import PollOutcome
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.run_board import Board

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


async def lost(scene: Scene) -> None:
    """Twelve minutes without an answer."""
    scene.clock.move(minutes=12)
    for subject in ("runs", "health"):
        outcome = PollOutcome(subject, scene.clock(), "unreachable", "Connection refused")  # type: ignore[arg-type]
        await scene.engine.cache.record_poll(outcome)
    scene.app._vitals_reader.ask()
    await scene.settle()
    await scene.tick(seconds=5)


@SIZES
async def test_runs(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """A day's runs, live."""
    async with staged(size) as scene:
        await scene.press("j", "j")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_runs_found(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """A search with its matches marked."""
    async with staged(size) as scene:
        await scene.press("slash", *"agent/fl", "enter")

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_runs_stale(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """The service is lost; its last facts stay."""
    async with staged(size) as scene:
        await lost(scene)

        assert scene.app.export_screenshot() == picture


@SIZES
async def test_runs_refused(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """The token is refused before anything was read."""
    async with staged(size, synced=False) as scene:
        await scene.engine.cache.record_poll(PollOutcome("runs", scene.clock(), "not_authorized", "expired", 401))
        scene.app._vitals_reader.ask()
        await scene.settle()

        assert scene.app.export_screenshot() == picture


async def test_runs_empty(staged: Staged, picture: SnapshotAssertion, board: Board) -> None:
    """There are no runs at all."""
    board.runs.clear()
    async with staged(SMALL) as scene:
        assert scene.app.export_screenshot() == picture


async def test_run(staged: Staged, picture: SnapshotAssertion) -> None:
    """One run on the whole screen."""
    async with staged(SMALL) as scene:
        await scene.press("j", "enter")

        assert scene.app.export_screenshot() == picture


async def test_keys(staged: Staged, picture: SnapshotAssertion) -> None:
    """The sheet of keys."""
    async with staged(SMALL) as scene:
        await scene.press("question_mark")

        assert scene.app.export_screenshot() == picture


async def test_statuses(staged: Staged, picture: SnapshotAssertion) -> None:
    """The status picker."""
    async with staged(SMALL) as scene:
        await scene.press("s", "j", "space")

        assert scene.app.export_screenshot() == picture


@pytest.mark.parametrize("theme", ["runwarden-light", "runwarden-colour-blind", "runwarden-contrast"])
async def test_themes(staged: Staged, picture: SnapshotAssertion, theme: str) -> None:
    """The other themes."""
    async with staged(SMALL, theme=theme) as scene:
        assert scene.app.export_screenshot() == picture
