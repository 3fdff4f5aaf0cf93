import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pty.ansi import Piece, pieces, unprintable
from tests.pty.terminal import Terminal

TOKEN = "token-of-the-hostile-scene"
OURS = re.compile(r"\]2;.*|\]22;[a-z-]+")
"""Strings that the console itself sends: the window's title, and the pointer's shape."""


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens the console on a service's address, on a terminal."""
    opened: list[Terminal] = []

    def start(base_url: str, *, folder: str = "data", arguments: tuple[str, ...] = ()) -> Terminal:
        env = {
            "HOME": str(tmp_path),
            "RUNWARDEN_DATA_DIR": str(tmp_path / folder),
            "RUNWARDEN_BASE_URL": base_url,
            "RUNWARDEN_TOKEN": TOKEN,
            "RUNWARDEN_CONFIG": str(tmp_path / "config.toml"),
            "TZ": "UTC",
        }
        # Our own bell would be taken for a foreign one.
        (tmp_path / "config.toml").write_text("[notify]\nbell = false\n")
        terminal = Terminal(["-m", "app", *arguments], env)
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


def foreign(data: bytes, calm: set[str]) -> list[Piece]:
    """What a terminal was sent that is neither plain text nor a sequence of a shape that a calm console sends."""
    return [piece for piece in pieces(data) if not _is_ours(piece, calm)]


def shapes(data: bytes) -> set[str]:
    """The shapes of all sequences, colours aside."""
    return {piece.shape for piece in pieces(data) if piece.kind in {"csi", "esc"} and not piece.text.endswith("m")}


def _is_ours(piece: Piece, calm: set[str]) -> bool:
    match piece.kind:
        case "text":
            return not unprintable(piece.text)
        case "osc":
            return OURS.fullmatch(piece.text) is not None and not unprintable(piece.text)
        case "control":
            return piece.text in "\r\n"
        case _:
            return piece.text.endswith("m") or piece.shape in calm
