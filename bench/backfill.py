"""How fast a history is fetched from a service 50 ms away: in windows against along its cursor, and at what cost."""

import asyncio
import json
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass
from pathlib import Path

import httpx

from app.api.client import Client
from app.profiles import HistorySettings
from app.profiles.token import Token
from app.sync.backfill import Backfill
from app.sync.runs import RunSync
from bench.busy import peer
from bench.figures import Figure
from storage.cache.cache import Cache
from storage.values import utc_now

LATENCY_S = 0.05
MOST = 100_000
PAGE = 100
DAYS = 36_500
Fetch = Callable[[RunSync], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What fetching everything took."""

    wall_s: float
    cpu_s: float
    """Of this process; the service is another one."""
    rows: list[tuple[object, ...]]
    """What the cache held then."""


def measure(count: int) -> Iterator[Figure]:
    """Wall time against the cursor's, processor time against a bare loop's."""
    count = min(count, MOST)
    with peer(count, LATENCY_S) as base_url:
        asyncio.run(_fetched(base_url, RunSync.refresh))  # Whatever is imported on the way is here now.
        windows = asyncio.run(_fetched(base_url, _in_windows))
        cursor = asyncio.run(_fetched(base_url, _along_the_cursor))
        bare = _bare(base_url)
    if windows.rows != cursor.rows or len(windows.rows) != count:
        raise AssertionError(f"{len(windows.rows)} runs in windows, {len(cursor.rows)} along the cursor, of {count}")
    name = f"backfill of {count:,} runs, {LATENCY_S * 1e3:.0f} ms away"
    yield Figure(name, windows.wall_s, "along the cursor", cursor.wall_s, unit="s", factor=1, bar=1 / 6)
    yield Figure("processor time of it", windows.cpu_s, "httpx, json, executemany", bare, unit="s", factor=1, bar=2.0)


async def _fetched(base_url: str, fetch: Fetch) -> Cost:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.sqlite3"
        async with await Cache.open(path) as cache, aclosing(Client(base_url, Token("bench"))) as client:
            runs = RunSync(client, cache, lambda _: None, clock=utc_now, page_size=PAGE, first_runs=PAGE)
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            await fetch(runs)
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT run_id, status, branch, created_us FROM runs ORDER BY run_id").fetchall()
    return Cost(wall_s, cpu_s, rows)


async def _in_windows(runs: RunSync) -> None:
    await runs.refresh()
    await Backfill(runs, HistorySettings()).run(days=DAYS)


async def _along_the_cursor(runs: RunSync) -> None:
    async for _stored in runs.reader.read():
        pass


def _bare(base_url: str) -> float:
    """Seconds of processor time of the least that such a program has to do."""
    cpu_s, token = time.process_time(), ""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(Path(folder) / "bare.sqlite3")) as connection,
        httpx.Client(base_url=base_url, trust_env=False) as client,
    ):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(
            "CREATE TABLE runs (run_id TEXT PRIMARY KEY, status, branch, repository, created, updated, raw)"
        )
        while token is not None:
            query = {"page_size": PAGE} | ({"page_token": token} if token else {})
            page = client.get("/external/runs", params=query).json()
            connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", map(_row, page["runs"]))
            connection.commit()
            token = page["next_token"]
    return time.process_time() - cpu_s


def _row(run: dict[str, object]) -> tuple[object, ...]:
    repository, raw = json.dumps(run["repository"]), json.dumps(run)
    names = ("run_id", "status", "branch_name", "created_at", "updated_at")
    run_id, status, branch, created, updated = (run[name] for name in names)
    return run_id, status, branch, repository, created, updated, raw
