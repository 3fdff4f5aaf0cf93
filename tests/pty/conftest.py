from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.pty.terminal import Terminal

TOKEN = "token-of-the-terminal"


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
        place = {
            "HOME": str(tmp_path),
            "RUNWARDEN_DATA_DIR": str(tmp_path / "data"),
            "RUNWARDEN_BASE_URL": board.base_url,
            "RUNWARDEN_TOKEN": TOKEN,
            "TZ": "UTC",
        }
        if config is not None:
            (tmp_path / "config.toml").write_text(config)
            place["RUNWARDEN_CONFIG"] = str(tmp_path / "config.toml")
        terminal = Terminal(arguments, {**place, **env}, size, code=program, errors=errors)
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()
