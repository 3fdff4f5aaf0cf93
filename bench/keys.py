"""How long a key takes to be painted among very many runs, against a DataTable that pages through a thousand."""

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figures import Figure
from bench.terminal import CONSOLE, RUNS, Terminal, environment, filled, ready

TABLE = """
from textual.app import App
from textual.widgets import DataTable
class Table(App):
    def compose(self):
        table = DataTable(cursor_type="row")
        table.add_columns("status", "repository", "branch", "started", "took", "run")
        for n in range(1000):
            table.add_row("completed", f"acme/service-{n % 40}", f"agent/topic-{n}", "4m ago", "4m12s", f"run_{n:026d}")
        yield table
Table().run()
"""
PAGE_DOWN, PAGE_UP, HOME, END, CLEAR = "\x1b[6~", "\x1b[5~", "\x1b[H", "\x1b[F", "\x1b"
ROUNDS = 9
SEVERAL = 8
ROWS = rb"(?s)(agent/topic-.*?){%d}" % SEVERAL
"""Several rows were painted: more than the one under the cursor, and more than the detail beside them shows."""

SEARCH_IS_OPEN, SEARCH_IS_CLOSED = rb"esc .*?clear", rb"palette"
"""What the last line of the screen offers then."""

DIGITS = "4321"
"""What is searched for: found in topics and run ids, and of the rows only their numbers are lit up."""

JOURNEYS = {
    "page down": (PAGE_DOWN, ""),
    "to the end": (END, HOME),
    "back to the top": (HOME, END),
    "page up from the end": (PAGE_UP, ""),
    "next view": ("]", "["),
}
"""What is pressed and timed, and what undoes it."""


BAR, LETTER_BAR = 1.0, 0.5


def measure(count: int) -> Iterator[Figure]:
    """A figure for each key; the table turns a page in turn with it, so that a busy machine slows both."""
    with tempfile.TemporaryDirectory() as folder, Terminal([str(CONSOLE)], filled(folder, count)) as console:
        console.until(RUNS)
        ready(console)
        for name, (keys, undo) in JOURNEYS.items():
            if name == "page up from the end":
                console.painted_after(END)
            seconds, yardstick = _in_turn(console, keys, undo)
            yield Figure(f"{name}, {count:,} runs", seconds, "DataTable's page down", yardstick, bar=BAR)
        yield from _search(console, DIGITS[: max(1, len(str(count)) - 3)], f"{count:,} runs")


@contextmanager
def table_on_show() -> Iterator[Terminal]:
    """A table not paged through yet: it keeps what it painted once."""
    with tempfile.TemporaryDirectory() as folder, Terminal([sys.executable, "-c", TABLE], environment(folder)) as table:
        table.until(RUNS)
        yield table


def _in_turn(console: Terminal, keys: str, undo: str) -> tuple[float, float]:
    ours, theirs = [], []
    with table_on_show() as table:
        for _ in range(ROUNDS):
            if undo:
                console.painted_after(undo)
            ours.append(rows_after(console, keys))
            theirs.append(rows_after(table, PAGE_DOWN))
    return statistics.median(ours), statistics.median(theirs)


def _search(console: Terminal, letters: str, among: str) -> Iterator[Figure]:
    """Each letter several times over: until rows are lit up where it was found."""
    by_letter: list[list[float]] = [[] for _ in letters]
    theirs = []
    with table_on_show() as table:
        for _ in range(ROUNDS):
            shown_after(console, "/", SEARCH_IS_OPEN)
            for index, letter in enumerate(letters):
                by_letter[index].append(rows_after(console, letter, lit_up(letters[: index + 1])))
            theirs.append(rows_after(table, PAGE_DOWN))
            shown_after(console, CLEAR, SEARCH_IS_CLOSED)
    yardstick = "DataTable's page down", statistics.median(theirs)
    medians = [statistics.median(seconds) for seconds in by_letter]
    yield Figure(f"a letter of a search, {among}", statistics.median(medians), *yardstick, bar=LETTER_BAR)
    yield Figure(f"the letter that finds least, {among}", medians[-1], *yardstick)


def lit_up(found: str) -> bytes:
    """Rows in which this alone is painted in a style of its own."""
    return rb"(?s)(m" + found.encode() + rb"\x1b.*?){%d}" % SEVERAL


def shown_after(terminal: Terminal, keys: str, pattern: bytes) -> None:
    """Type, and go on once the pattern was painted: on a busy machine silence alone says nothing."""
    terminal.settled()
    terminal.press(keys)
    terminal.until(pattern)
    terminal.settled()


def rows_after(terminal: Terminal, keys: str, rows: bytes = ROWS) -> float:
    """Seconds from a key to other rows; what stands beside them may follow."""
    terminal.settled()
    start = terminal.press(keys)
    seconds = terminal.until(rows) - start
    terminal.settled()
    return seconds
