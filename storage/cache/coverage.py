"""Coverage: the time ranges, by creation, of which every run is held; they grow page by page."""

import sqlite3
from datetime import datetime

from storage.database import immediate, snapshot
from storage.records import Coverage, CoverageRange
from storage.values import NO_TIME_US, from_us_or_none, to_sortable_us


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


def coverage(connection: sqlite3.Connection) -> Coverage:
    """What is held completely, and up to when."""
    with snapshot(connection):
        return _coverage(connection)


def _coverage(connection: sqlite3.Connection) -> Coverage:
    held = connection.execute("SELECT start_us, end_us, as_of_us FROM coverage ORDER BY end_us DESC").fetchall()
    if not held:
        return Coverage()
    first_us = None
    if held[0][0] == NO_TIME_US:
        readable = "SELECT min(created_us) FROM runs WHERE created_us > ?"
        (first_us,) = connection.execute(readable, (NO_TIME_US,)).fetchone()
    return Coverage(
        ranges=tuple(CoverageRange(from_us_or_none(start), from_us_or_none(end)) for start, end, _ in held),
        as_of=from_us_or_none(held[0][2]),
        first_run_at=from_us_or_none(first_us),
    )
