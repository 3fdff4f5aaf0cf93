"""Pictures of runs, of what opens above them and of the themes, under a clock that stands still."""

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.console.conftest import SMALL, WIDE, Staged

SIZES = pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])


@SIZES
async def test_runs(staged: Staged, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    """A day's runs, live."""
    async with staged(size) as scene:
        await scene.press("j", "j")

        assert scene.app.export_screenshot() == picture


async def test_runs_found(staged: Staged, picture: SnapshotAssertion) -> None:
    """A search with its matches marked."""
    async with staged(WIDE) as scene:
        await scene.press("slash", *"agent/fl", "enter")

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


@pytest.mark.parametrize("theme", ["runwarden-light", "runwarden-colour-blind", "runwarden-contrast"])
async def test_themes(staged: Staged, picture: SnapshotAssertion, theme: str) -> None:
    """The other themes."""
    async with staged(SMALL, theme=theme) as scene:
        assert scene.app.export_screenshot() == picture
