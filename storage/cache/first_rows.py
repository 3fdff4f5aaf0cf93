"""The first rows of an order that has to be searched for: what is found at once, without waiting for the rest."""

import sqlite3
import time
from typing import Final

from storage.cache.filters import where
from storage.cache.orders import order_by
from storage.cache.read_runs import COLUMNS, row_of
from storage.records import RunFilter, RunRow, RunSort

_STEPS: Final = 20_000
"""Steps of SQLite's machine between two looks at the clock."""


def first_rows(
    connection: sqlite3.Connection, wanted: RunFilter, sort: RunSort, limit: int, patience_s: float
) -> tuple[RunRow, ...]:
    """The first `limit` runs of the order, or those of them that are found within `patience_s`."""
    deadline = time.monotonic() + patience_s
    condition = where(wanted)
    found: list[RunRow] = []
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        # One walk along the order's index: each row is there as soon as it is found.
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM runs AS r WHERE {condition.sql} ORDER BY {order_by(sort)} LIMIT ?",  # noqa: S608 — built from constants; values are bound
            (*condition.parameters, limit),
        )
        for values in rows:
            found.append(row_of(*values))  # noqa: PERF401 — what was found before the time is up has to stay
    except sqlite3.OperationalError:
        if time.monotonic() <= deadline:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    return tuple(found)
