"""A console that holds only the newest runs."""

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.console.conftest import WIDE, Scene, Staged
from tests.console.scenes import TOKEN_VARIABLE, settings_for
from tests.lab import Lab

HELD = 20
"""How many runs the first refresh of a console that has `begun` reads."""


@pytest.fixture
def begun(staged: Staged, board: Lab, tmp_path: Path) -> Staged:
    """Puts a console on show whose first refresh reads the newest 20 of 60 runs."""

    def begin(size: tuple[int, int] = WIDE, *, synced: bool = True) -> AbstractAsyncContextManager[Scene]:
        os.environ[TOKEN_VARIABLE] = "token-of-the-scene"  # The engine before it took it.
        profile = settings_for(board.base_url, tmp_path).profile()
        poll = replace(profile.poll, page_size=HELD, first_runs=HELD)
        return staged(size, synced=synced, changed={"profiles": (replace(profile, poll=poll),)})

    return begin


def cursor_line(scene: Scene) -> str:
    return next(line for line in scene.lines if line.startswith("▌"))
