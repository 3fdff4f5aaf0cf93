"""The first frame's rows, read from the cache before anything else is imported."""

import sqlite3
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from storage.cache import coverage, health, polls
from storage.cache.read_runs import Remembered, total
from storage.cache.schema import LAYOUT, layout_of
from storage.cache.window import rows
from storage.records import Coverage, LinkState, PlatformHealth, RunFilter, RunRow, RunSort

_PATIENCE_S: Final = 0.1
"""If the cache is locked or the filter takes longer, the rows come with the opened cache instead."""
_STEPS: Final = 10_000
"""SQLite virtual machine steps between two checks of the clock."""


class FirstPaint(Struct, frozen=True):
    """The content of the first screen."""

    rows: tuple[RunRow, ...]
    total: int
    held: int
    links: tuple[LinkState, ...]
    health: tuple[PlatformHealth, ...]
    coverage: Coverage


def peek(path: Path, filter: RunFilter, sort: RunSort, limit: int) -> FirstPaint | None:
    """Read the first `limit` rows and the facts around them; None: there is no cache that can be read unchanged.

    It changes nothing, creates no file and reports no damage: opening the cache does.
    """
    if not path.exists():
        return None
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)
    except sqlite3.Error:
        return None
    deadline = time.monotonic() + _PATIENCE_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        if layout_of(connection) != LAYOUT:
            return None
        remembered = Remembered(reads_texts=False)
        return FirstPaint(
            rows=rows(connection, filter, sort, 0, limit, remembered),
            total=total(connection, filter, remembered),
            held=total(connection, RunFilter(), remembered),
            links=polls.links(connection),
            health=health.platforms(connection),
            coverage=coverage.coverage(connection),
        )
    except sqlite3.Error:
        # Damaged, locked or too slow: the rows come a moment later, from the opened cache.
        return None
    finally:
        connection.close()
