"""What the console costs while nothing happens, and how its keys fare while very much does."""

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import cycle
from pathlib import Path

from app.profiles import CACHE_FILE
from bench.figures import Figure
from bench.terminal import CONSOLE, RUNS, Terminal, cpu_s, environment, filled, ready

IDLE_S = 30.0
NEXT_PART = "\x1b[1;2C"
SCREENS = {
    "Runs": "",
    "a run's conversation": "\r",
    "a run's review": NEXT_PART,
    "a run's changes": NEXT_PART,
    "a run's log": NEXT_PART,
    "Health": "2",
    "Insights": "4",
    "Automations": "5",
    "Activity": "6",
    "Inbox": "7",
}
"""The keys that lead there from the one before. The last ones are visited when no age counts seconds any more."""
SYNCED = 100_000
PRESSES = 300
CURSOR = rb"48;2;30;49;69"
"""The cursor's background in the default theme."""


def measure(count: int) -> Iterator[Figure]:
    """Idle processor time, memory, and keys during a large sync."""
    yield from _memory(count)
    yield from _idle()
    yield from _bot()
    yield from _syncing()


def _memory(count: int) -> Iterator[Figure]:
    small, large = map(_anonymous, (1_000, count))
    yield Figure(f"memory with {count:,} cached runs", large, "1,000 runs", small, unit="MB", factor=1e-6, bar=1.2)


def _anonymous(runs: int) -> float:
    with tempfile.TemporaryDirectory() as folder, Terminal([str(CONSOLE)], filled(folder, runs)) as console:
        console.until(RUNS)
        ready(console)
        for keys in ("\x1b[6~" * 5, "\x1b[F", "\x1b[H"):
            console.painted_after(keys)
        return float(console.anonymous_bytes())


def _idle() -> Iterator[Figure]:
    with _idle_console() as console:
        ready(console, 8.0)
        before, start = cpu_s(console.process.pid), time.perf_counter()
        while time.perf_counter() < start + IDLE_S:
            console.settled()
        used = (cpu_s(console.process.pid) - before) / (time.perf_counter() - start)
    yield Figure(
        f"processor while nothing changes, {IDLE_S:.0f} s", used, "1 % of a core", 0.01, unit="%", factor=100, bar=0.4
    )


def written_at_rest(_: int) -> Iterator[Figure]:
    """How much the console writes to its terminal under polls that change nothing: a figure for each screen."""
    with _idle_console() as console:
        for name, keys in SCREENS.items():
            console.press(keys)
            ready(console, 5.0)
            written = console.written_in(IDLE_S)
            yield Figure(f"written on {name}, {IDLE_S:.0f} s", written, "300 bytes a second", 300, "B", 1, bar=1)


@contextmanager
def _idle_console() -> Iterator[Terminal]:
    """A console on a service of which nothing changes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        peer(1_000) as base_url,
        Terminal([str(CONSOLE)], environment(folder, base_url)) as console,
    ):
        console.until(RUNS)
        yield console


def _bot() -> Iterator[Figure]:
    """A bot at rest, with the default polls."""
    with tempfile.TemporaryDirectory() as folder, peer(1_000) as base_url:
        argv = [sys.executable, "-P", "-m", "app", "watch"]
        # Making the files imports what no later start needs.
        subprocess.run([*argv, "--once"], env=environment(folder, base_url), stdout=subprocess.DEVNULL, check=True)
        bot = subprocess.Popen(argv, env=environment(folder, base_url), stdout=subprocess.DEVNULL)
        try:
            time.sleep(2 * IDLE_S)
            before, start = cpu_s(bot.pid), time.perf_counter()
            time.sleep(IDLE_S)
            used = (cpu_s(bot.pid) - before) / (time.perf_counter() - start)
            resident = int(Path(f"/proc/{bot.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        finally:
            bot.kill()
            bot.wait()
    yield Figure(f"processor of a bot at rest, {IDLE_S:.0f} s", used, "0.5 % of a core", 0.005, "%", 100, bar=0.6)
    yield Figure("memory of a bot at rest", resident, "60 MB", 60e6, "MB", 1e-6, bar=1)


def _syncing() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, peer(SYNCED) as base_url:
        config = Path(folder) / "config.toml"
        config.write_text(f"[poll]\nfirst_runs = {SYNCED}\n")
        env = {**environment(folder, base_url), "RUNWARDEN_CONFIG": str(config)}
        with Terminal([str(CONSOLE)], env) as console:
            console.until(RUNS)
            busy = list(_presses(console, lambda: _held(folder) < SYNCED))
            while _held(folder) < SYNCED:
                console.settled()
            ready(console)
            presses = iter(range(PRESSES))
            idle = list(_presses(console, lambda: next(presses, None) is not None))
    name = f"p95 of a key while {SYNCED:,} runs are synced"
    yield Figure(name, _p95(busy), "the same when idle", _p95(idle), bar=2.0)
    yield Figure(name.replace("p95", "median"), statistics.median(busy), "the same when idle", statistics.median(idle))


def _presses(console: Terminal, goes_on: Callable[[], bool]) -> Iterator[float]:
    """Seconds from moving the cursor to the next of the two newest runs in the cursor's colour."""
    moves = cycle((("j", 1), ("k", 0)))
    # The presses before may have ended on either of the two.
    console.press("g")
    console.settled()
    while goes_on():
        key, number = next(moves)
        # With its name, and on one line: what is painted for other reasons has the other one in that colour.
        there = CURSOR + rb"[^H]*?topic-%d\b" % number
        console.unread = b""
        start = console.press(key)
        yield console.until(there) - start
        time.sleep(0.02)


def _held(folder: str) -> int:
    """How many runs are in the cache by now."""
    (path,) = Path(folder).glob(f"*/{CACHE_FILE}")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT coalesce(sum(runs), 0) FROM statuses").fetchone()[0])


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)]


@contextmanager
def peer(count: int, latency_s: float = 0.0) -> Iterator[str]:
    """A service in a process of its own; its base address."""
    argv = [sys.executable, "-m", "bench.peer", str(count), str(latency_s)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
