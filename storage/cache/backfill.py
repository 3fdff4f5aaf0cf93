"""The backfill's state: whether it is paused, and its progress, for other processes."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.records.backfill import BackfillProgress
from storage.values import from_us, from_us_or_none, to_us

SILENT: Final = timedelta(seconds=10)
"""A process that backfills reports its progress more often than this, unless it waits."""


def is_paused(connection: sqlite3.Connection) -> bool:
    """Whether a user paused the backfill, in any process."""
    return connection.execute("SELECT 1 FROM backfill WHERE is_paused").fetchone() is not None


def pause(connection: sqlite3.Connection, *, paused: bool) -> None:
    """Pause the backfill of all processes, or resume it."""
    with immediate(connection):
        connection.execute(
            "INSERT INTO backfill (one, is_paused) VALUES (1, :paused)"
            " ON CONFLICT DO UPDATE SET is_paused = excluded.is_paused",
            {"paused": int(paused)},
        )


def store_progress(connection: sqlite3.Connection, progress: BackfillProgress, at: datetime) -> None:
    """Store the backfill's progress for other processes."""
    until_us = None if progress.until is None else to_us(progress.until)
    how_far = (progress.phase, progress.done_runs, progress.estimated_runs, progress.seconds_left)
    with immediate(connection):
        connection.execute(
            "INSERT OR REPLACE INTO backfill_progress VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
            (*how_far, until_us, progress.why, to_us(at)),
        )


def progress(connection: sqlite3.Connection, now: datetime) -> BackfillProgress | None:
    """The progress of the process that backfills. None: no process reported any lately."""
    row = connection.execute(
        "SELECT phase, done_runs, estimated_runs, seconds_left, until_us, why, told_us FROM backfill_progress"
    ).fetchone()
    if row is None:
        return None
    phase, done_runs, estimated_runs, seconds_left, until_us, why, told_us = row
    until, told_at = from_us_or_none(until_us), from_us(told_us)
    # A process that waits reports nothing until the wait is over.
    if not told_at - SILENT <= now <= max(until or told_at, told_at) + SILENT:
        return None
    return BackfillProgress(phase, done_runs, estimated_runs, seconds_left=seconds_left, until=until, why=why)
