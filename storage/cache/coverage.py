"""Coverage: the time ranges, by creation, of which every run is held; they grow page by page."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from storage.database import immediate, snapshot
from storage.records import Coverage, CoverageRange
from storage.values import NO_TIME_US, from_us_or_none, sqlite_text, to_sortable_us


def extend(
    connection: sqlite3.Connection, start: datetime | None, end: datetime | None, as_of: datetime | None = None
) -> Coverage:
    """Record that every run created from start to end, both inclusive, is held, and merge the ranges that touch.

    Args:
        connection: The cache's writer.
        start: None: from the very first run.
        end: None: the list was empty, or its times cannot be read.
        as_of: By our clock; until then nothing is missing above `start`. None: nothing is known of what is above `end`.

    Raises:
        ValueError: The start is after the end.
    """
    start_us, end_us, as_of_us = to_sortable_us(start), to_sortable_us(end), to_sortable_us(as_of)
    if start_us > end_us:
        raise ValueError(f"A range cannot start at {start} and end before it, at {end}.")
    # One range ends in the microsecond before the other starts: nothing fits between them.
    touched = {"start": start_us - 1, "end": end_us + 1}
    with immediate(connection):
        merged = connection.execute(
            "SELECT min(start_us), max(end_us), max(as_of_us) FROM"
            " (SELECT start_us, end_us, as_of_us FROM coverage WHERE start_us <= :end AND end_us >= :start"
            " UNION ALL VALUES (:first, :last, :as_of))",
            {**touched, "first": start_us, "last": end_us, "as_of": as_of_us},
        ).fetchone()
        connection.execute("DELETE FROM coverage WHERE start_us <= :end AND end_us >= :start", touched)
        connection.execute("INSERT INTO coverage (start_us, end_us, as_of_us) VALUES (?, ?, ?)", merged)
        return _coverage(connection)


def touch(connection: sqlite3.Connection, as_of: datetime) -> Coverage:
    """Record that up to this time of our clock no run is missing above the start of the newest range."""
    with immediate(connection):
        connection.execute(
            "UPDATE coverage SET as_of_us = max(as_of_us, ?) WHERE end_us = (SELECT max(end_us) FROM coverage)",
            (to_sortable_us(as_of),),
        )
        return _coverage(connection)


def forget(connection: sqlite3.Connection) -> None:
    """Claim nothing any more: the service shows another history."""
    with immediate(connection):
        connection.execute("DELETE FROM coverage")
        connection.execute("DELETE FROM places")


def mark_unread(connection: sqlite3.Connection, *, is_unread: bool) -> None:
    """Remember whether a list whose times say nothing goes on below what was read of it."""
    with immediate(connection):
        if is_unread:
            connection.execute("INSERT OR IGNORE INTO service_traits (name, value) VALUES ('unread', '1')")
            # Where runs were missed, an endless list has to be walked again.
            connection.execute("DELETE FROM service_traits WHERE name = 'endless'")
        else:
            connection.execute("DELETE FROM service_traits WHERE name = 'unread'")


def is_unread(connection: sqlite3.Connection) -> bool:
    """Whether a list whose times say nothing goes on below what was read of it."""
    return connection.execute("SELECT 1 FROM service_traits WHERE name = 'unread'").fetchone() is not None


def drop_anchor(connection: sqlite3.Connection) -> None:
    """Remember which runs are held now, since none is missing between the newest of them and those before."""
    with immediate(connection):
        connection.execute(
            "INSERT INTO service_traits (name, value) SELECT 'anchor', coalesce(max(id), 0) FROM runs WHERE true"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value"
        )


def anchored(connection: sqlite3.Connection, run_ids: Sequence[str]) -> frozenset[str] | None:
    """Those of these runs that were held when the anchor was dropped last. None: it never was."""
    with snapshot(connection):
        anchor = connection.execute(
            "SELECT CAST(value AS INTEGER) FROM service_traits WHERE name = 'anchor'"
        ).fetchone()
        if anchor is None:
            return None
        marks = ", ".join("?" * len(run_ids))
        held = connection.execute(
            f"SELECT run_id FROM runs WHERE run_id IN ({marks}) AND id <= ?", (*map(sqlite_text, run_ids), *anchor)
        )
        return frozenset(run_id for (run_id,) in held.fetchall())


def coverage(connection: sqlite3.Connection) -> Coverage:
    """What is held completely, and up to when."""
    with snapshot(connection):
        return _coverage(connection)


def _coverage(connection: sqlite3.Connection) -> Coverage:
    held = connection.execute("SELECT start_us, end_us, as_of_us FROM coverage ORDER BY end_us DESC").fetchall()
    dropped = connection.execute("SELECT dropped FROM links WHERE subject = 'runs'").fetchone()
    first_us = None
    if held and held[0][0] == NO_TIME_US:
        readable = "SELECT min(created_us) FROM runs WHERE created_us > ?"
        (first_us,) = connection.execute(readable, (NO_TIME_US,)).fetchone()
    return Coverage(
        ranges=tuple(CoverageRange(from_us_or_none(start), from_us_or_none(end)) for start, end, _ in held),
        as_of=from_us_or_none(held[0][2]) if held else None,
        first_run_at=from_us_or_none(first_us),
        dropped=dropped[0] if dropped else 0,
    )
