"""Coverage: the time ranges, by creation, of which every run is held."""

import sqlite3
from datetime import datetime

from storage.database import immediate, snapshot
from storage.records import Coverage
from storage.values import NO_TIME_US, from_us, to_us


def extend(connection: sqlite3.Connection, start: datetime | None, end: datetime) -> Coverage:
    """Record that every run created from start to end, both inclusive, is held; None: from the very beginning.

    Raises:
        ValueError: The start is after the end.
    """
    start_us, end_us = NO_TIME_US if start is None else to_us(start), to_us(end)
    if start_us > end_us:
        raise ValueError(f"A range cannot start at {start} and end before it, at {end}.")
    with immediate(connection):
        touched = {"start": start_us, "end": end_us}
        first_us, last_us = connection.execute(
            "SELECT min(start_us), max(end_us) FROM coverage WHERE start_us <= :end AND end_us >= :start", touched
        ).fetchone()
        connection.execute("DELETE FROM coverage WHERE start_us <= :end AND end_us >= :start", touched)
        merged = (start_us, end_us) if first_us is None else (min(start_us, first_us), max(end_us, last_us))
        connection.execute("INSERT INTO coverage (start_us, end_us) VALUES (?, ?)", merged)
        return _coverage(connection)


def coverage(connection: sqlite3.Connection) -> Coverage:
    """What is held completely, up to the last poll."""
    with snapshot(connection):
        return _coverage(connection)


def covered_until(connection: sqlite3.Connection) -> datetime | None:
    """The end of the newest range; None: there is none."""
    newest = _newest(connection)
    return None if newest is None else from_us(newest[1])


def _coverage(connection: sqlite3.Connection) -> Coverage:
    newest = _newest(connection)
    if newest is None:
        return Coverage()
    start_us, end_us = newest
    if start_us != NO_TIME_US:
        return Coverage(complete_since=from_us(start_us))
    # Everything is held: complete since the very first run.
    (first_us,) = connection.execute("SELECT min(created_us) FROM runs WHERE created_us > ?", (NO_TIME_US,)).fetchone()
    return Coverage(complete_since=from_us(end_us if first_us is None else first_us), whole=True)


def _newest(connection: sqlite3.Connection) -> tuple[int, int] | None:
    row: tuple[int, int] | None = connection.execute(
        "SELECT start_us, end_us FROM coverage ORDER BY end_us DESC LIMIT 1"
    ).fetchone()
    return row
