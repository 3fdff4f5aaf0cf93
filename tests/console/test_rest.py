"""A screen at rest is still: what the terminal shows is not written again."""

import random
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import pytest
from rich.cells import cell_len
from textual.drivers.headless_driver import HeadlessDriver
from textual.widget import Widget

from app.console.terminal import WrittenText
from tests.console.conftest import Staged
from tests.console.scenes import a_day
from tests.lab import Lab

HEIGHT = 32
SCREENS = (("end",), ("end", "enter"), ("end", "enter", "l"), ("2",), ("7",))
REST_S, POLL_S = 6, 3
RENDER_LINES = Widget.render_lines
MOST = 300
"""Bytes a second."""


class Line:
    """A terminal's cells, as text with its style, drawn from placed texts."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], str] = {}

    def write(self, output: str) -> None:
        for y, x, placed in re.findall(r"\x1b\[(\d+);(\d+)H((?:[^\x1b]|\x1b\[[\d;]*m)*)", output):
            at, style = int(x), ""
            for escape, character in re.findall(r"(\x1b\[[\d;]*m)|([^\n])", placed):
                if escape:
                    style = "" if escape == "\x1b[0m" else escape
                else:
                    self.cells[int(y), at] = style + character
                    at += cell_len(character)


def painted(rng: random.Random, width: int) -> Iterator[str]:
    """A frame: some lines, each in one piece or several, the cursor at its end."""
    for y in rng.sample(range(1, 6), rng.randint(1, 5)):
        edges = [0, *sorted(rng.sample(range(1, width), rng.choice((0, 0, 1, 2)))), width]
        for left, right in pairwise(edges):
            cuts = [0, *sorted(rng.sample(range(1, right - left), min(2, right - left - 1))), right - left]
            texts = [rng.choice("ab界 ") * (end - start) for start, end in pairwise(cuts)]
            texts = [text[: len(text) // 2] + " " * (len(text) % 2) if "界" in text else text for text in texts]
            styles = [rng.choice(("", "\x1b[1m", "\x1b[38;2;1;2;3m")) for _ in texts]
            parts = [f"{style}{text}\x1b[0m" if style else text for style, text in zip(styles, texts, strict=True)]
            yield f"\x1b[{y};{left + 1}H{''.join(parts)}\n"
    yield f"\x1b[1;{rng.randint(1, 3)}H"


def test_the_terminal_shows_the_same_as_if_all_were_written() -> None:
    """Whatever the pieces are, with wide characters, and after another program had the screen."""
    rng, written, whole = random.Random(7), 0, 0
    text, theirs, ours = WrittenText(), Line(), Line()
    for _ in range(3_000):
        frame = "".join(painted(rng, 12))
        if rng.random() < 0.02:
            ours.cells.clear()
            theirs.cells.clear()
            frame = "\x1b[?1049h" + frame
        changes = text.changes(frame, HEIGHT)
        theirs.write(frame)
        ours.write(changes)
        written, whole = written + len(changes), whole + len(frame)

        assert ours.cells == theirs.cells
    assert written < whole


def test_only_the_changed_part_of_a_line_is_written() -> None:
    """An equal frame costs nothing; one with every row is written whole, as the terminal may have lost it."""
    text = WrittenText()
    line = "\x1b[3;1H\x1b[1mlive\x1b[0m  {}  \x1b[2macme\x1b[0m\x1b[1;1H"
    assert text.changes(line.format("3s"), 2) == line.format("3s")

    assert text.changes(line.format("3s"), 2) == ""
    assert text.changes(line.format("4s"), 2) == "\x1b[3;5H  4s  \x1b[1;1H"
    pieces = "\x1b[3;1Hone\x1b[3;5Htwo\x1b[3;9H{}\x1b[1;1H"
    assert text.changes(pieces.format("three"), 2) == pieces.format("three")
    assert text.changes(pieces.format("threw"), 2) == "\x1b[3;9Hthrew\x1b[1;1H"
    every_row = "\x1b[1;1Hone\n\x1b[2;1Htwo\x1b[1;1H"
    for _ in range(2):
        assert text.changes(every_row, 2) == every_row.replace("\n", "")


async def test_screens_at_rest_are_still(staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """While polls change nothing, on any tab and any part of a run."""
    text, written = WrittenText(), list[str]()
    monkeypatch.setattr(Widget, "render_lines", RENDER_LINES)
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    monkeypatch.setattr(HeadlessDriver, "write", lambda _, output: written.append(text.changes(output, HEIGHT)))
    a_day(board)
    for run_id in [run_id for run_id, run in board.runs.items() if run["status"] in {"working", "queued"}]:
        del board.runs[run_id]
    async with staged((120, HEIGHT)) as scene:
        await scene.tick(hours=2)
        await scene.sync()
        for keys in SCREENS:
            await scene.to_all_runs()
            await scene.press(*keys)
            # The first frames show all that may be repainted.
            for second in range(-POLL_S, REST_S):
                if second == 0:
                    written.clear()
                if second % POLL_S == 0:
                    await scene.sync()
                await scene.tick(seconds=1)
            assert len("".join(written)) / REST_S < MOST, (keys, written)


async def test_ages_on_a_still_screen_go_on(staged: Staged, board: Lab) -> None:
    """Minutes pass on it, though it is looked at less often while nothing counts seconds."""
    now = board.now
    board.put("only", "failed", created=now - timedelta(minutes=20), updated=now - timedelta(minutes=10))
    async with staged((120, HEIGHT)) as scene:
        await scene.sync()
        before = int(re.findall(r"(\d+)m ago", scene.text)[0])
        for _ in range(2 * 60 + 5):
            await scene.tick(seconds=1)

        assert int(re.findall(r"(\d+)m ago", scene.text)[0]) == before + 2
