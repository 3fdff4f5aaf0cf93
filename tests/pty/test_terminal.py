"""The program on a terminal: plain output, a restart without the service, and a long paste."""

import json
import os
from collections.abc import Callable

from tests.console.scenes import a_day
from tests.lab import Lab
from tests.pty.terminal import Terminal
from tests.waiting import eventually

Opened = Callable[..., Terminal]


def test_a_dumb_terminal_gets_plain_output(opened: Opened) -> None:
    """The output is one snapshot as text, without a single control sequence, instead of the console."""
    terminal = opened(TERM="dumb")
    terminal.end()

    assert b"runwarden runs list" in terminal.seen
    assert b"\x1b" not in terminal.seen


def test_a_restart_without_the_service_shows_the_same_rows(opened: Opened) -> None:
    """The cached rows appear at once; then the service is reported as unreachable, and nothing covers them."""
    with Lab() as board:
        a_day(board)
        first = opened(RUNWARDEN_BASE_URL=board.base_url)
        # The rows appear a moment before the poll is recorded.
        first.shows("complete", "live")
        first.type("q")
        assert first.end() == 0
    second = opened(RUNWARDEN_BASE_URL=board.base_url)
    second.shows("No answer for", "fix/login-timeout")
    second.type("q")

    assert second.end() == 0
    assert second.seen.index(b"fix/login-timeout") < second.seen.index(b"No answer for")


def test_a_paste_keeps_its_order(opened: Opened, board: Lab) -> None:
    """Thousands of characters arrive in pieces that split marks and letters, with keys right before and after."""
    text = "\n".join(f"{number:04} Prüfe 🇩🇪 テスト Zeile {number:04}" for number in range(200))
    terminal = opened()
    terminal.shows("complete", "fix/login-timeout")
    terminal.type("n")
    terminal.shows("What should the agent do")
    typed = f"a\x1b[200~{text}\x1b[201~zy\x7f".encode()
    for at in range(0, len(typed), 997):
        os.write(terminal.master, typed[at : at + 997])
        terminal.press("")
    terminal.press("\x13")
    terminal.shows("Copy as curl")

    def is_sent() -> bool:
        # Keys in the first moment of a preview, or without a pause, send nothing.
        terminal.press("\x13")
        return bool(board.posts)

    eventually(is_sent, "it is sent", pause_s=1.0)

    assert json.loads(board.posts[0])["instructions"] == f"a{text}z"
