"""The first picture: what the cache holds, read before anything else is imported."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.cache import coverage, health, polls, read_runs
from storage.records import Coverage, LinkState, PlatformHealth, RunFilter, RunRow, RunSort

_PATIENCE_S: Final = 0.1
"""A cache that is locked for longer can wait until the screen stands."""


@dataclass(frozen=True, slots=True)
class FirstPaint:
    """Everything the first screen shows."""

    rows: tuple[RunRow, ...]
    total: int
    """How many runs the filter lets through."""
    links: tuple[LinkState, ...]
    health: tuple[PlatformHealth, ...]
    coverage: Coverage


def peek(path: Path, filter: RunFilter, sort: RunSort, limit: int) -> FirstPaint | None:  # noqa: A002 — the field's own word
    """The first `limit` rows and what stands around them; None: there is no cache yet that can be read as it is.

    Changes nothing, makes no file, and says nothing of damage: opening the cache does.
    """
    if not path.exists():
        return None
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S, isolation_level=None
        )
    except sqlite3.Error:
        return None
    try:
        return _paint(connection, filter, sort, limit)
    except sqlite3.Error:
        # Not migrated yet, damaged or locked: the picture then comes a moment later, from the opened cache.
        return None
    finally:
        connection.close()


def _paint(connection: sqlite3.Connection, wanted: RunFilter, sort: RunSort, limit: int) -> FirstPaint:
    counts = read_runs.Counts()
    return FirstPaint(
        rows=read_runs.rows(connection, wanted, sort, 0, limit, counts),
        total=counts.total(connection, wanted),
        links=polls.links(connection),
        health=health.platforms(connection),
        coverage=coverage.coverage(connection),
    )
