"""Retention: the oldest runs are dropped, a few at a time; active and followed ones, and those in the ledger, stay."""

import sqlite3
from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Final

from storage.cache.coverage import load_note, store_note
from storage.cache.schema import make_index
from storage.cache.texts import BLOCK
from storage.database import execute, scalar
from storage.values import NO_TIME_US, to_us

STEP: Final = 500
"""How many runs one transaction drops: few, so that other reads and writes do not wait long."""
_ROWS: Final = dict.fromkeys(("transitions", "stuck", "watched", "summaries", "written"), "run") | dict.fromkeys(
    ("sightings", "run_bodies", "runs"), "id"
)
"""The tables that hold a run, each with the column of the run's number."""
_OLDEST: Final = """
SELECT id, status, created_us FROM runs AS r
WHERE created_us > ? AND created_us < ?
    AND (is_final OR presence = 'lost')
    AND run_id NOT IN (SELECT run_id FROM pins) AND run_id NOT IN (SELECT value FROM json_each(?))
ORDER BY created_us, run_id LIMIT ?
"""


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the file without its free pages, which SQLite fills before the file grows."""
    pragmas = "pragma_page_count, pragma_freelist_count, pragma_page_size"
    return int(scalar(connection, f"SELECT (page_count - freelist_count) * page_size FROM {pragmas}"))


def drop_oldest(connection: sqlite3.Connection, before: datetime | None, needed: Collection[str]) -> int:
    """Drop the oldest runs that have ended, at most `STEP`, and their coverage; return how many.

    Those created before `before`; None: any, those without a readable time first. Followed runs and `needed` ids stay.
    """
    after_us, before_us = (NO_TIME_US - 1, 2**62) if before is None else (NO_TIME_US, to_us(before))
    if oldest := execute(connection, _OLDEST, after_us, before_us, needed, STEP).fetchall():
        removed = [number for number, _, _ in oldest]
        for table, column in _ROWS.items():
            execute(connection, f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", removed)
        execute(connection, f"DELETE FROM texts WHERE block IN (SELECT value / {BLOCK} FROM json_each(?))", removed)
        sql = "UPDATE statuses SET runs = runs - ? WHERE status = ?"
        counts = Counter(status for _, status, _ in oldest)
        connection.executemany(sql, [(count, status) for status, count in counts.items()])
        make_index(connection, "repository")
        has_run = "EXISTS (SELECT 1 FROM runs WHERE repository = repositories.label)"
        connection.execute(f"DELETE FROM repositories WHERE NOT {has_run}")
        until_us = max(created_us for _, _, created_us in oldest)
        ends = {"until": until_us, "no_time": NO_TIME_US}
        if until_us == NO_TIME_US:
            # Runs without a readable time sort first: some were dropped, and coverage no longer reaches them.
            connection.execute(
                "UPDATE coverage SET start_us = coalesce((SELECT min(created_us) FROM runs"
                " WHERE created_us > :no_time), end_us) WHERE start_us = :no_time",
                ends,
            )
        else:
            connection.execute("DELETE FROM coverage WHERE end_us <= :until", ends)
            connection.execute("UPDATE coverage SET start_us = :until + 1 WHERE start_us <= :until", ends)
        store_note(connection, "dropped_until_us", max(until_us, load_note(connection, "dropped_until_us") or until_us))
    return len(oldest)
