"""The terminal gets each text once, and ages keep counting."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from rich.cells import cell_len

from app.console.terminal import WrittenText
from storage.thread import DatabaseThread
from tests.console.conftest import Staged
from tests.lab import Lab

HEIGHT = 32


class Line:
    """A terminal's cells as styled text, drawn from positioned texts."""

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
    """A frame: some lines, each in one or several pieces, with the cursor at the end."""
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


def test_split_output_shows_the_same_text() -> None:
    """The terminal shows the same text however it is split, with wide characters, and after another program used it."""
    rng, written, whole = random.Random(7), 0, 0
    text, theirs, ours = WrittenText(), Line(), Line()
    for _ in range(500):
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


async def test_ages_on_an_idle_screen_keep_counting(staged: Staged, board: Lab) -> None:
    """Minutes keep counting, although the screen is checked less often while it shows no seconds."""
    now = board.now
    board.put("only", "failed", created=now - timedelta(minutes=20), updated=now - timedelta(minutes=10))
    async with staged((120, HEIGHT)) as scene:
        await scene.sync()
        before = int(re.findall(r"(\d+)m ago", scene.text)[0])
        for _ in range(65):
            await scene.tick(seconds=1)

        assert int(re.findall(r"(\d+)m ago", scene.text)[0]) == before + 1


async def test_a_poll_that_finds_nothing_new_costs_little(
    staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends three requests, and with all that the screen reads afterwards it uses the files a few times."""
    jobs, run = Counter[str](), DatabaseThread.run

    async def noted(thread: DatabaseThread, job: Callable[..., Any]) -> Any:
        jobs[thread.path.name] += 1
        return await run(thread, job)

    monkeypatch.setattr(DatabaseThread, "run", noted)
    board.fill(30)
    async with staged() as scene:
        await scene.sync()
        board.requests.clear()
        jobs.clear()
        await scene.engine.runs.refresh()
        await scene.settle()

        assert len(board.requests) == 3
        assert jobs == {"cache.sqlite3": 19, "state.sqlite3": 1}
