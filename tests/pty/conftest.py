from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.pty.terminal import Terminal, environment


@pytest.fixture
def opened(board: Lab, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Runs the program, or `program` instead, on a terminal with an empty configuration file."""
    terminals: list[Terminal] = []

    def start(program: str | None = None, **env: Any) -> Terminal:
        (tmp_path / "config.toml").touch()
        terminals.append(Terminal((), environment(tmp_path, board.base_url) | env, code=program))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
