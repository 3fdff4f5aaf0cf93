from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.pty.terminal import Terminal, environment


@pytest.fixture
def opened(board: Lab, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens the program on a terminal: `program` instead of it; without a config there is no file."""
    terminals: list[Terminal] = []

    def start(
        *arguments: str,
        config: str | None = "",
        program: str | None = None,
        size: tuple[int, int] = (100, 30),
        errors: int | None = None,
        **env: Any,
    ) -> Terminal:
        if config is not None:
            (tmp_path / "config.toml").write_text(config)
        given = environment(tmp_path, board.base_url) | ({"RUNWARDEN_CONFIG": ""} if config is None else {}) | env
        terminal = Terminal(arguments, given, size, code=program, errors=errors)
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()
