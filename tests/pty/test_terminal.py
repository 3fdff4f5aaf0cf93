"""What the console does to the terminal while it is open: mouse, title, suspension, size, colours."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

from tests.console.scenes import a_day
from tests.lab import Lab
from tests.pty.ansi import pieces
from tests.pty.terminal import ESCAPE, Terminal
from tests.waiting import eventually

Opened = Callable[..., Terminal]
MOUSE_ON = b"\x1b[?1003h"
DISCARDED = b"keys were discarded"
WITNESSED = f"""
import os, termios
from app.__main__ import main
termios.tcflush = lambda *_: os.write(1, {DISCARDED!r})
main()
"""


def test_a_dumb_terminal_gets_plain_output(opened: Opened) -> None:
    """Text without a single control sequence: one snapshot instead of the console, and no pager."""
    for arguments, said in (((), b"runwarden runs list"), (("man", "runs", "list"), b"Usage: runwarden runs list")):
        terminal = opened(*arguments, TERM="dumb", PAGER="")
        terminal.end()

        assert said in terminal.seen
        assert b"\x1b" not in terminal.seen
    paged = opened("man", "runs", "retry", PAGER="sed s/^/PAGED/")
    paged.wrote(b"PAGEDUsage: runwarden runs retry")


def test_what_was_stopped_goes_on_once_and_gives_the_modes_back(opened: Opened) -> None:
    """SIGSTOP leaves the terminal as it is; continued, one reader takes all keys and everything is painted.

    Stopped by ctrl+z, the terminal is the shell's: its screen, its modes. Continued, the same rows are back.
    """
    terminal = opened(program=WITNESSED)
    terminal.shows("complete", "fix/login-timeout")
    for way in ("SIGSTOP", "ctrl+z"):
        if way == "ctrl+z":
            terminal.type("\x1a")
        else:
            terminal.process.send_signal(signal.SIGSTOP)
        terminal.read_until(lambda: terminal.state() == "T")
        if way == "ctrl+z":
            terminal.wrote(b"\x1b[?1049l")
            assert terminal.attributes == terminal.attributes_before
        terminal.screen.rows.clear()
        entered = terminal.seen.count(b"\x1b[?1049h")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wrote(b"\x1b[?1049h", times=entered + 1)
        terminal.shows("fix/login-timeout", "? help")

        assert way == "ctrl+z" or DISCARDED not in terminal.seen

    terminal.type("q")

    assert terminal.end() == 0
    assert terminal.attributes == terminal.attributes_before
    assert DISCARDED in terminal.seen


def test_a_restart_without_the_service_shows_the_same_rows(opened: Opened) -> None:
    """The cached ones, at once; then the service is said to be unreachable, and nothing stands over them."""
    with Lab() as board:
        a_day(board)
        first = opened(RUNWARDEN_BASE_URL=board.base_url)
        # The rows are there a moment before it is written down that the service answered.
        first.shows("complete", "live")
        first.type("q")
        assert first.end() == 0
    second = opened(RUNWARDEN_BASE_URL=board.base_url)
    second.shows("No answer for", "fix/login-timeout")
    second.type("q")

    assert second.end() == 0
    assert second.seen.index(b"fix/login-timeout") < second.seen.index(b"No answer for")


def test_it_fits_every_window_from_sixty_by_twenty(opened: Opened, tmp_path: Path) -> None:
    """Made smaller and larger while it runs, whatever size is exported: header, keys and rows, and nothing outside.

    `mouse = false` leaves the mouse to the terminal; `2>file` takes nothing away from the screen.
    """
    with (tmp_path / "errors").open("wb") as errors:
        terminal = opened(config="[console]\nmouse = false\n", errors=errors.fileno(), COLUMNS="80", LINES="24")
        terminal.shows("1 Runs", "complete")
    for size in ((60, 20), (200, 60)):
        terminal.resize(size)
        terminal.read_until(lambda: _is_framed(terminal, "acme/"))
        # What was on its way in the old size has come; from here on every byte is meant for the new one.
        terminal.forget()
        for key, word in (("2", "github"), ("1", "acme/")):
            terminal.type(key)
            terminal.read_until(lambda word=word: _is_framed(terminal, word))

        assert terminal.screen.farthest[0] <= size[0]
        assert terminal.screen.farthest[1] <= size[1]
    assert MOUSE_ON not in terminal.seen
    assert (tmp_path / "errors").read_bytes() == b""


def _is_framed(terminal: Terminal, word: str) -> bool:
    """The header on the first line, the keys on the last, and this between them."""
    first, *between, last = terminal.screen.lines
    return "environment" in first and last.endswith("? help") and any(word in line for line in between)


def test_a_paste_keeps_its_order(opened: Opened, board: Lab) -> None:
    """Thousands of characters in pieces that cut marks and letters in two, with keys right before and after them."""
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
        # Keys that come in the first moment of a preview, or without a pause, send nothing.
        terminal.press("\x13")
        return bool(board.posts)

    eventually(is_sent, "it is sent", pause_s=1.0)

    assert json.loads(board.posts[0])["instructions"] == f"a{text}z"


def test_no_color_means_none(opened: Opened) -> None:
    """Not one colour is set, on any screen; the cursor is seen all the same, in reverse.

    The window's title says how things are; it is kept, set, and given back.
    """
    terminal = opened(NO_COLOR="1")
    terminal.shows("complete")
    for sequence in (MOUSE_ON, b"\x1b[22;2t", b"3 working, 1 queued"):
        terminal.wrote(sequence)
    titles = [piece.text for piece in pieces(terminal.seen) if piece.kind == "osc" and piece.text.startswith("]2;")]
    assert titles[-1].endswith("\N{MIDDLE DOT} environment")
    for key, word in (("2", "degraded"), ("3", "organization"), ("1", "complete"), ("?", "On this screen")):
        terminal.type(key)
        terminal.shows(word)
    terminal.type("qq")
    terminal.end()
    assert terminal.seen.rindex(b"\x1b[23;2t") > terminal.seen.rindex(b"\x1b]2;")
    styles = [piece.text for piece in pieces(terminal.seen) if piece.kind == "csi" and piece.text.endswith("m")]
    codes = [set(re.findall(r"\d+", style)) for style in styles]
    wanted = {"0", "1", "2", "3", "4", "7", "9", "39", "49", "21", "22", "23", "24", "27"}

    assert set().union(*codes) <= wanted
    assert any("7" in found for found in codes)


def test_a_failing_editor_gives_the_terminal_back_and_a_bouncing_key_closes_the_palette_once(opened: Opened) -> None:
    """The form is there again, with the reason, and the keys work.

    After a second enter or escape in the same moment, the command of the palette is run, and the console stays.
    """
    terminal = opened(EDITOR="false", VISUAL="")
    terminal.shows("complete", "? help")
    terminal.press("n")
    terminal.shows("New run")
    terminal.press("\x05")
    terminal.shows("exited with code 1")
    terminal.press(ESCAPE)
    terminal.shows("? help")
    for second in ("\r", ESCAPE):
        terminal.press(":")
        terminal.type("sort")
        terminal.shows("Sort by")
        terminal.type(f"\r{second}")
        terminal.press("", ESCAPE)
    terminal.press("q")

    assert terminal.end() == 0
    assert b"Traceback" not in terminal.seen
