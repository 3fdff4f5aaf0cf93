"""The screen that was painted last, shown at once by the next start."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pty.ansi import Screen
from tests.pty.terminal import Terminal

Opened = Callable[..., Terminal]
ENTER = b"\x1b[?1049h"
LOADING = """
import signal, sys
import app.config
from app.__main__ import main
app.config.load = lambda *_: signal.pause()
sys.exit(main())
"""
"""Stands still after the first frame."""
CALLER = """
import signal, sys
from app.__main__ import main

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
for number in NUMBERS:
    signal.signal(number, print)
main()
print("handlers:", "as before" if {signal.getsignal(number) for number in NUMBERS} == {print} else "lost")
"""
"""Has handlers of its own for the signals that the first frame listens to."""


QUIET = "[notify]\non = []\n"
"""A toast would lie over the rows."""


def left(opened: Opened, *shown: str, **options: object) -> Terminal:
    """A console that was opened, and left by its key once it shows this as well."""
    console = opened(**options)
    console.shows("complete", "? help", "fix/login-timeout", *shown)
    console.type("q")
    console.end()
    return console


def first_frame(console: Terminal) -> str:
    """What stood on the screen before the toolkit's first word."""
    _, before, _ = console.seen.split(ENTER, 2)
    screen = Screen(console.screen.width, console.screen.height)
    screen.write(before)
    return "\n".join(screen.lines)


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_it_is_the_screen_that_was_painted_last(opened: Opened, size: tuple[int, int]) -> None:
    """Every row stands where the console paints it again; the first line says how old it is, never that it is live."""
    # What comes after the rows moves them: the counts, the flags of stuck runs, and the pane with its last line.
    left(
        opened, "52", "working !", "unobserved", *(["On this branch"] if size[0] > 120 else []), size=size, config=QUIET
    )
    again = opened(size=size, config=QUIET)
    again.shows("? help")
    again.wrote(ENTER, times=2)
    first, *rows = first_frame(again).split("\n")

    assert re.fullmatch(r" runwarden  environment   ◌ as of \d\d:\d\d:\d\d · opening *", first)
    shown = {number: row for number, row in enumerate(rows, 1) if "acme/" in row}
    assert len(shown) > 5
    for number, row in shown.items():
        # Ages and durations move on, even past midnight.
        place = slice(row.index("acme/"), row.index("acme/") + 30)

        again.read_until(lambda number=number, row=row, place=place: again.screen.lines[number][place] == row[place])


def test_a_console_that_is_killed_leaves_one_too(opened: Opened, tmp_path: Path) -> None:
    """Frames are kept while it runs."""
    killed = opened()
    killed.shows("complete", "fix/login-timeout")
    killed.read_until(lambda: any((tmp_path / "data" / "frames").glob("*x30")))
    killed.process.kill()
    killed.process.wait()
    again = opened()
    again.wrote(ENTER, times=2)

    assert "fix/login-timeout" in first_frame(again)


def test_keys_typed_at_it_count_and_leave_no_trace(opened: Opened) -> None:
    """They wait to be read; the terminal does not echo them over the rows."""
    left(opened)
    again = opened()
    again.read_until(lambda: "fix/login-timeout" in again.screen.text)
    again.type("?")
    again.shows("On this screen")
    again.type("qq")

    assert again.end() == 0
    assert again.attributes == again.attributes_before


@pytest.mark.parametrize("starts", [0, 1, 2])
def test_what_is_typed_while_the_console_opens_is_answered_in_order(opened: Opened, starts: int) -> None:
    """Also before its first frame, and keys that need the engine: to another tab, its help, and out of both."""
    left(opened)
    again = opened()
    again.wrote(ENTER, times=starts)
    again.type("4?")
    again.shows("Insights", "On this screen")
    again.type("qq")

    assert again.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_it_down(opened: Opened, number: signal.Signals) -> None:
    """Only Python itself listens so early: the screen is given back all the same."""
    left(opened)
    again = opened(program=LOADING)
    again.shows("opening")
    again.process.send_signal(number)

    assert again.end() == 128 + number
    assert again.seen.endswith(b"\x1b[?25h\x1b[?1049l")
    assert again.attributes == again.attributes_before


def test_a_configuration_that_breaks_takes_it_down(opened: Opened) -> None:
    """The error stands on the shell's screen, not on a frame of better days."""
    left(opened)
    broken = opened(config="[console]\nmouse = 7\n")

    assert broken.end() == 2
    assert ENTER not in broken.seen
    assert b"config.toml:2" in broken.seen  # not the screen: a long temporary folder goes beyond its edge


@pytest.mark.parametrize("config", ["", "[console]\nmouse = 7\n"])
def test_signals_are_given_back_to_the_caller(opened: Opened, config: str) -> None:
    """Whether the console was shown or its configuration could not be read."""
    caller = opened(program=CALLER, config=config)
    if not config:
        caller.shows("? help")
        caller.type("q")
    caller.wrote(b"handlers: ")
    caller.end()

    assert b"handlers: as before" in caller.seen


def test_another_terminal_or_profile_shows_none(opened: Opened) -> None:
    """A frame belongs to one kind of terminal, and to what the environment asks for."""
    left(opened)
    for other in ({"TERM": "screen-256color"}, {"RUNWARDEN_PROFILE": "environment"}):
        console = opened(**other)
        console.shows("? help", "fix/login-timeout")

        assert console.seen.count(ENTER) == 1
        console.type("q")
        console.end()
