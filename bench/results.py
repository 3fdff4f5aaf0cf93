"""A run's change and log of very many lines against short ones: the first screen, and a key."""

import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from bench.keys import BAR, PAGE_DOWN, PAGE_UP, ROUNDS, rows_after, table_on_show
from bench.terminal import Terminal, environment

DIFF_LINES = 100_000
LOG_LINES = 1_000_000
SHORT = 100
FIRST_BAR = 1.2
FIRST_ROUNDS = 7

SHOWN = """
import sys
from textual.app import App
kind, count = sys.argv[1], int(sys.argv[2])

class Shown(App):
    def compose(self):
        if kind == "diff":
            from widgets.results.diff import DiffView
            self.view = DiffView()
        else:
            from widgets.results.log import LogSpool, LogView
            self.spool = LogSpool()
            self.view = LogView(self.spool)
        yield self.view

    def on_mount(self):
        self.view.focus()
        self.call_after_refresh(self.show_diff if kind == "diff" else self.show_log)

    def show_diff(self):
        from app.results.diff import Patch
        from widgets.results.diff import DiffRows
        self.rows = DiffRows(Patch(open(sys.argv[3], "rb").read()))
        self.rows.extend(500)
        self.view.show(self.rows, (), "bench")
        self.run_worker(self.rest)

    async def rest(self):
        import asyncio
        while not self.rows.is_complete:
            await asyncio.to_thread(self.rows.extend, 20_000)
            self.view.grew()

    def show_log(self):
        from storage.records.results import LogChunk
        with open(sys.argv[3], "rb") as file:
            size = file.seek(0, 2)
            begin = file.seek(max(0, size - 262_144))
            self.spool.put(LogChunk(begin, size, size, True, file.read()))
        self.view.changed(follow=True)
        if begin:
            self.run_worker(self.earlier)

    async def earlier(self):
        import asyncio
        from storage.records.results import LogChunk
        with open(sys.argv[3], "rb") as file:
            while self.spool.begin:
                begin = file.seek(max(0, self.spool.begin - 262_144))
                data = file.read(self.spool.begin - begin)
                before = self.spool.put(LogChunk(begin, begin + len(data), 0, True, data))
                self.view.changed(before=before)
                await asyncio.sleep(0)

Shown().run()
"""
"""The widgets as the run's screen feeds them; a log is read to its beginning, as a search would do it."""


def measure(_: int) -> Iterator[Figure]:
    """A figure for each first screen, and for a page in each."""
    for kind, many, write in (("diff", DIFF_LINES, _diff), ("log", LOG_LINES, _log)):
        with tempfile.TemporaryDirectory() as folder:
            long, short = (write(folder, lines) for lines in (many, SHORT))
            ours, theirs = [], []
            for _ in range(FIRST_ROUNDS):
                ours.append(_first_screen(kind, many, long, folder))
                theirs.append(_first_screen(kind, SHORT, short, folder))
            name, yardstick = f"first screen of a {kind} of {many:,} lines", f"one of {SHORT} lines"
            yield Figure(name, statistics.median(ours), yardstick, statistics.median(theirs), bar=FIRST_BAR)
            seconds, table = _page(kind, many, long, folder)
            yield Figure(f"page in a {kind} of {many:,} lines", seconds, "DataTable's page down", table, bar=BAR)


def _started(kind: str, lines: int, path: str, folder: str) -> Terminal:
    return Terminal([sys.executable, "-c", SHOWN, kind, str(lines), path], environment(folder))


def _first_screen(kind: str, lines: int, path: str, folder: str) -> float:
    with _started(kind, lines, path, folder) as shown:
        return shown.until(rb"(?s)(agent/topic-.*?){8}") - shown.started_s


def _page(kind: str, lines: int, path: str, folder: str) -> tuple[float, float]:
    key, back = (PAGE_DOWN, PAGE_UP) if kind == "diff" else (PAGE_UP, PAGE_DOWN)
    ours, theirs = [], []
    with _started(kind, lines, path, folder) as shown, table_on_show() as table:
        shown.until(rb"(?s)(agent/topic-.*?){8}")
        shown.settled()
        for _ in range(ROUNDS):
            ours.append(rows_after(shown, key))
            theirs.append(rows_after(table, PAGE_DOWN))
            shown.painted_after(back)
    return statistics.median(ours), statistics.median(theirs)


def _diff(folder: str, lines: int) -> str:
    path = f"{folder}/diff-{lines}"
    with Path(path).open("w") as file:
        for number in range(max(1, lines // 1_000)):
            size = min(lines, 1_000) // 2
            file.write(f"diff --git a/f{number}.py b/f{number}.py\n--- a/f{number}.py\n+++ b/f{number}.py\n")
            file.write(f"@@ -1,{size} +1,{size} @@\n")
            file.writelines(f"-old agent/topic-{line}\n+new agent/topic-{line}\n" for line in range(size))
    return path


def _log(folder: str, lines: int) -> str:
    path = f"{folder}/log-{lines}"
    with Path(path).open("w") as file:
        file.writelines(f"12:00:00 \x1b[32mINFO\x1b[0m agent/topic-{n} {'x' * 60}\n" for n in range(lines))
    return path
