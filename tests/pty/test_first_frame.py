"""The next start shows the last painted screen at once."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.scenes import a_day
from tests.lab import Lab
from tests.pty.ansi import Screen
from tests.pty.terminal import Terminal, environment

Opened = Callable[..., Terminal]
ENTER = b"\x1b[?1049h"


SIZE = (140, 40)


@pytest.fixture(scope="module")
def board() -> Iterator[Lab]:
    with Lab() as board:
        a_day(board)
        yield board


@pytest.fixture(scope="module")
def home(board: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of a console that was opened and quit."""
    home = tmp_path_factory.mktemp("home")
    console = opened_in(home, board)
    # Parts that load after the rows move them: the counts, and the pane with its last line.
    console.shows("complete", "? help", "fix/login-timeout", "All 60", "unknown", "On this branch")
    console.type("q")
    assert console.end() == 0
    console.close()
    shutil.copytree(home / "data", home / "left")
    return home


@pytest.fixture
def again(board: Lab, home: Path) -> Iterator[Opened]:
    """Opens a console there; each test starts with the first console's frame."""
    terminals: list[Terminal] = []

    def start(**options: Any) -> Terminal:
        terminals.append(opened_in(home, board, **options))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
    shutil.rmtree(home / "data")
    shutil.copytree(home / "left", home / "data")


def opened_in(home: Path, board: Lab, *, config: str = "[notify]\non = []\n", **env: Any) -> Terminal:
    (home / "config.toml").write_text(config)
    return Terminal((), environment(home, board.base_url, **env), SIZE)


def first_frame(console: Terminal) -> str:
    _, before, _ = console.seen.split(ENTER, 2)
    screen = Screen(console.screen.width, console.screen.height)
    screen.write(before)
    return "\n".join(screen.lines)


def test_the_first_frame_is_the_last_painted_screen(again: Opened) -> None:
    """Every row is where the console paints it again; the header shows the frame's age, and never says live."""
    console = again()
    console.shows("? help")
    console.wrote(ENTER, times=2)
    first, *rows = first_frame(console).split("\n")

    assert re.fullmatch(r" runwarden  environment   ◌ as of \d\d:\d\d:\d\d · opening *", first)
    shown = {number: row for number, row in enumerate(rows, 1) if "acme/" in row}
    assert len(shown) > 5
    for number, row in shown.items():
        # Ages and durations change, even past midnight.
        at = slice(row.index("acme/"), row.index("acme/") + 30)
        console.read_until(lambda number=number, row=row, at=at: console.screen.lines[number][at] == row[at])


def test_a_broken_configuration_removes_the_first_frame(again: Opened) -> None:
    """The error appears on the shell's screen, not on an old frame."""
    broken = again(config="[console]\nmouse = 7\n")

    assert broken.end() == 2
    assert ENTER not in broken.seen
    assert b"config.toml:2" in broken.seen  # Not the screen: the path of a long temporary folder is cut off there.


def test_another_profile_has_no_first_frame(again: Opened) -> None:
    """A frame belongs to the profile that the environment selects."""
    console = again(RUNWARDEN_PROFILE="environment")
    console.shows("? help", "fix/login-timeout")

    assert console.seen.count(ENTER) == 1


def test_another_terminal_shows_the_frame_without_colours(again: Opened) -> None:
    """Its rows are on show before the console has started."""
    console = again(TERM="screen-256color")
    console.wrote(ENTER, times=2)

    assert "fix/login-timeout" in first_frame(console)
    assert {*re.findall(rb"\x1b\[([\d;]*)m", console.seen.split(ENTER, 2)[1])} == {b"0"}
