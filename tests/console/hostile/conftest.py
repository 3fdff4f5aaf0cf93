import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pty.ansi import Piece, pieces, unprintable
from tests.pty.terminal import Terminal

TOKEN = "token-of-the-hostile-scene"
CONFIG = """
[notify]
bell = false

[keys]
"runs.repositories" = "R"
"runs.views" = "V"
"runs.columns" = "C"
"runs.order" = "o"
"run.copy_json" = "Y"
"""
OURS = re.compile(r"\]2;.*|\]22;[a-z-]+")
"""Strings that the console itself sends: the window's title, and the pointer's shape."""

COLOURS = re.compile(r"\x1b\[(?!5;77;1m)[\d;]*m")
"""The attributes that anybody may print; blinking in colour 77 is a payload's."""
CALM = re.compile(
    COLOURS.pattern
    + r"|\x1b\[\d+;\d+H|\x1b\[2[23];2t|\x1b\[<u|\x1b\[>\d+u|\x1b\[\?(2026|2048)\$p"
    + r"|\x1b\[\?(7|25|1000|1003|1004|1006|1015|1016|1049|2004|2026|2048)[hl]"
)
"""All that the console sends when left alone: places, the window's title kept, keys, and modes."""


EACH = """
import json, sys
from app.__main__ import main
for arguments in json.loads(sys.argv[1]):
    print("= ended with", main(arguments), "=", flush=True)
"""
"""One command after the other in one process: each start of an interpreter costs more than the command."""
ENDED = re.compile(rb"= ended with (\d+) =\r\n")


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens the console on a service's address, on a terminal."""
    opened: list[Terminal] = []

    def start(
        base_url: str,
        *,
        folder: str = "data",
        arguments: tuple[str, ...] = (),
        program: str | None = None,
        config: str = CONFIG,
        **more: str,
    ) -> Terminal:
        env = {
            "HOME": str(tmp_path),
            "RUNWARDEN_DATA_DIR": str(tmp_path / folder),
            "RUNWARDEN_BASE_URL": base_url,
            "RUNWARDEN_TOKEN": TOKEN,
            "RUNWARDEN_CONFIG": str(tmp_path / "config.toml"),
            "TZ": "UTC",
            **more,
        }
        # Our own bell would be taken for a foreign one.
        (tmp_path / "config.toml").write_text(config)
        terminal = Terminal(arguments, env, code=program)
        opened.append(terminal)
        return terminal

    yield start
    for terminal in opened:
        terminal.close()


@pytest.fixture
def prints(terminals: Callable[..., Terminal]) -> Callable[..., list[tuple[bytes, int]]]:
    """Runs commands on one terminal; what it was sent by each, and its exit status."""

    def run(base_url: str, commands: Sequence[Sequence[str]], **how: Any) -> list[tuple[bytes, int]]:
        terminal = terminals(base_url, program=EACH, arguments=(json.dumps(commands),), **how)
        assert terminal.end() == 0, terminal.seen[-2000:]
        *parts, rest = ENDED.split(terminal.seen)
        assert rest == b""
        found = list(zip(parts[::2], map(int, parts[1::2]), strict=True))
        assert len(found) == len(commands)
        return found

    return run


def foreign(data: bytes, calm: re.Pattern[str] = CALM) -> list[Piece]:
    """What a terminal was sent that is neither plain text nor a sequence that a calm console sends."""
    return [piece for piece in pieces(data) if not _is_ours(piece, calm)]


def _is_ours(piece: Piece, calm: re.Pattern[str]) -> bool:
    match piece.kind:
        case "text":
            return not unprintable(piece.text)
        case "osc":
            return OURS.fullmatch(piece.text) is not None and not unprintable(piece.text)
        case "control":
            return piece.text in "\r\n"
        case _:
            return calm.fullmatch(piece.text) is not None
