"""How long a window of rows takes, wherever it lies, against the first window of a thousand runs."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

from bench.figures import Figure
from bench.history import NOW, fill
from storage.cache.cache import Cache
from storage.records import RunFilter, RunSort

WINDOW = 50
ROUNDS = 9
Read = Callable[[Cache, int], Awaitable[object]]

READS: dict[str, Read] = {
    "first window": lambda cache, _: window(cache, RunFilter(), 0),
    "window in the middle": lambda cache, count: window(cache, RunFilter(), count // 2),
    "last window": lambda cache, count: window(cache, RunFilter(), count - WINDOW),
    "first window of failed runs": lambda cache, _: window(cache, RunFilter(statuses=("failed",)), 0),
    "first window of a search": lambda cache, _: window(cache, RunFilter(search="topic-77"), 0),
    "figures of thirty days": lambda cache, _: figures(cache),
    "counts by status": lambda cache, _: cache.status_counts(RunFilter()),
}


def measure(count: int) -> Iterator[Figure]:
    """A figure for each kind of window."""
    yardstick = asyncio.run(_medians(1_000))["first window"]
    for name, seconds in asyncio.run(_medians(count)).items():
        yield Figure(f"{name}, {count:,} runs", seconds, "first window of 1,000", yardstick)


async def window(cache: Cache, wanted: RunFilter, offset: int) -> object:
    """The rows that a table asks for."""
    return await cache.rows(wanted, RunSort(), offset=offset, limit=WINDOW)


async def figures(cache: Cache) -> object:
    """Everything that the Insights room shows of its longest stretch."""
    edges = [NOW - timedelta(days=30 - day) for day in range(31)]
    return await cache.outcomes(edges), await cache.repository_figures(edges[0])


async def _medians(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.sqlite3"
        await asyncio.to_thread(fill, path, count)
        async with await Cache.open(path) as cache:
            return {name: await _median(cache, read, count) for name, read in READS.items()}


async def _median(cache: Cache, read: Read, count: int) -> float:
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await read(cache, count)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[ROUNDS // 2]
