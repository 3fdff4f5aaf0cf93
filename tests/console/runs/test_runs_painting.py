"""What is painted, and what is left alone."""

import pytest

from tests.console.conftest import Staged


async def test_a_poll_that_changes_nothing_paints_no_whole_screen(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header is told how the link is; what stands below it is left alone."""
    async with staged() as scene:
        screen = scene.app.screen
        painted: list[object] = []
        plain = screen.refresh
        monkeypatch.setattr(screen, "refresh", lambda *a, **k: painted.append(k) or plain(*a, **k))
        await scene.engine.refresh()
        await scene.settle()

        assert painted == []
