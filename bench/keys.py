"""How long a key takes to be painted among very many runs, against a DataTable that pages through a thousand."""

import statistics
import sys
import tempfile
from collections.abc import Iterator

from bench.figures import Figure
from bench.terminal import CONSOLE, Terminal, filled, ready

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
PAGE_DOWN, HOME, END = "\x1b[6~", "\x1b[H", "\x1b[F"
ROUNDS = 9
ROWS = rb"(?s)(agent/topic-.*?){8}"
"""Several rows were painted: more than the one under the cursor, and more than the detail beside them shows."""

DIGITS = "4321"
"""What is searched for: found in topics and run ids, and of the rows only their numbers are lit up."""

JOURNEYS = {
    "page down": (PAGE_DOWN, ""),
    "to the end": (END, HOME),
    "back to the top": (HOME, END),
    "page up from the end": ("\x1b[5~", ""),
    "next view": ("]", "["),
}
"""What is pressed and timed, and what undoes it."""


def measure(count: int) -> Iterator[Figure]:
    """A figure for each key."""
    with tempfile.TemporaryDirectory() as folder:
        env = filled(folder, count)
        with Terminal([sys.executable, "-c", TABLE], env) as table:
            table.until(rb"acme/service-")
            yardstick = statistics.median(timings(table, PAGE_DOWN))
        with Terminal([str(CONSOLE)], env) as console:
            console.until(rb"acme/service-")
            ready(console)
            for name, (keys, undo) in JOURNEYS.items():
                if name == "page up from the end":
                    console.painted_after(END)
                seconds = statistics.median(timings(console, keys, undo))
                yield Figure(f"{name}, {count:,} runs", seconds, "DataTable's page down", yardstick)
            console.painted_after("/")
            letters = [rows_after(console, letter) for letter in DIGITS]
            yield Figure(f"a letter of a search, {count:,} runs", statistics.median(letters), "the same", yardstick)
            yield Figure(f"the slowest letter, {count:,} runs", max(letters), "the same", yardstick)


def timings(terminal: Terminal, keys: str, undo: str = "") -> list[float]:
    """Seconds from key to painted rows, again and again."""
    found = []
    for _ in range(ROUNDS):
        if undo:
            terminal.painted_after(undo)
        found.append(rows_after(terminal, keys))
    return found


def rows_after(terminal: Terminal, keys: str) -> float:
    """Seconds from a key to other rows; what stands beside them may follow."""
    terminal.settled()
    start = terminal.press(keys)
    seconds = terminal.until(ROWS) - start
    terminal.settled()
    return seconds
