"""The backfill's state: whether it is paused, the places that its walks reached, and the place of the re-reading."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.records.backfill import BackfillProgress, ListPlace, RereadPlace
from storage.values import from_us, from_us_or_none, sqlite_text, to_sortable_us, to_us

_KEPT_PLACES: Final = 8
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


def keep_progress(connection: sqlite3.Connection, progress: BackfillProgress, at: datetime) -> None:
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


def reread(connection: sqlite3.Connection) -> RereadPlace | None:
    """The place of the re-reading. None: it has not begun."""
    row = connection.execute(
        "SELECT began_us, floor_us, down_to_us, token, last_began_us FROM backfill WHERE began_us IS NOT NULL"
    ).fetchone()
    if row is None:
        return None
    began_us, floor_us, down_to_us, token, last_began_us = row
    floor, down_to, last_began_at = map(from_us_or_none, (floor_us, down_to_us, last_began_us))
    return RereadPlace(from_us(began_us), floor, down_to, token, last_began_at)


def keep_reread(connection: sqlite3.Connection, place: RereadPlace) -> None:
    """Store the place of the re-reading."""
    times = (place.began_at, place.floor, place.down_to, place.last_began_at)
    token = None if place.token is None else sqlite_text(place.token)
    with immediate(connection):
        connection.execute(
            "INSERT INTO backfill (one, is_paused, began_us, floor_us, down_to_us, last_began_us, token)"
            " VALUES (1, 0, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET began_us = excluded.began_us,"
            " floor_us = excluded.floor_us, down_to_us = excluded.down_to_us,"
            " last_began_us = excluded.last_began_us, token = excluded.token",
            (*(None if at is None else to_us(at) for at in times), token),
        )


def place(connection: sqlite3.Connection, bottom: datetime | None) -> ListPlace | None:
    """How far the walk that reached down to this creation time got. None: there is no such walk."""
    row = connection.execute(
        "SELECT token, run_id, as_of_us FROM places WHERE bottom_us = ?", (to_sortable_us(bottom),)
    ).fetchone()
    return None if row is None else ListPlace(row[0], row[1], from_us(row[2]))


def keep_place(connection: sqlite3.Connection, bottom: datetime | None, reached: ListPlace | None) -> None:
    """Store how far a walk that reached down to this creation time got. None: it cannot be continued."""
    bottom_us = to_sortable_us(bottom)
    with immediate(connection):
        connection.execute("DELETE FROM places WHERE bottom_us = ?", (bottom_us,))
        if reached is None:
            return
        # The earlier place of the same walk is replaced; of other walks, the last few are kept.
        connection.execute("DELETE FROM places WHERE as_of_us = ?", (to_us(reached.as_of),))
        connection.execute(
            "DELETE FROM places WHERE as_of_us <="
            " (SELECT as_of_us FROM places ORDER BY as_of_us DESC LIMIT 1 OFFSET ?)",
            (_KEPT_PLACES - 1,),
        )
        connection.execute(
            "INSERT INTO places (bottom_us, token, run_id, as_of_us) VALUES (?, ?, ?, ?)",
            (bottom_us, sqlite_text(reached.token), sqlite_text(reached.run_id), to_us(reached.as_of)),
        )
