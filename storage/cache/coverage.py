"""Coverage: the ranges of creation times of which every run is held; they grow page by page."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate, snapshot
from storage.records import Coverage, CoverageRange, RereadCoverage
from storage.values import NO_TIME_US, from_us, from_us_or_none, sqlite_text, to_sortable_us, to_us

_MICROSECOND: Final = timedelta(microseconds=1)
_FUTURE_US: Final = timedelta(minutes=5) // _MICROSECOND
"""An `as_of` this far in the future was stored before our clock was set back."""
BEHIND_FROM: Final = "behind_from_us"
"""The trait that exists while the service's clock is behind: the creation time above which nothing is claimed."""
_REREAD: Final = ("reread_since_us", "reread_as_of_us")
"""The traits that store the arguments of `keep_pass`."""


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
    with immediate(connection):
        _believe(connection, as_of_us)
        if (behind_from_us := trait_values(connection, (BEHIND_FROM,)).get(BEHIND_FROM)) is not None:
            end_us = min(end_us, behind_from_us)
            as_of_us = as_of_us if start is None else NO_TIME_US
            if start_us > end_us:
                return _coverage(connection)
        # Ranges also merge if one ends in the microsecond before the other starts.
        touched = {"start": start_us - 1, "end": end_us + 1}
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
        _believe(connection, to_us(as_of))
        connection.execute(
            "UPDATE coverage SET as_of_us = max(as_of_us, ?) WHERE end_us = (SELECT max(end_us) FROM coverage)",
            (to_sortable_us(as_of),),
        )
        return _coverage(connection)


def _believe(connection: sqlite3.Connection, as_of_us: int) -> None:
    if as_of_us != NO_TIME_US:
        late = {"as_of": as_of_us, "latest": as_of_us + _FUTURE_US}
        connection.execute("UPDATE coverage SET as_of_us = :as_of WHERE as_of_us > :latest", late)


def trait_values(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, int]:
    """The traits of the service that are numbers, as far as they are stored."""
    marks = ", ".join("?" * len(names))
    held = connection.execute(f"SELECT name, value FROM service_traits WHERE name IN ({marks})", names)
    return {name: int(value) for name, value in held.fetchall()}


def keep_values(connection: sqlite3.Connection, **values_us: int) -> None:
    """Store traits of the service that are numbers, inside the caller's transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO service_traits (name, value) VALUES (?, ?)",
        [(name, str(value)) for name, value in values_us.items()],
    )


def forget(connection: sqlite3.Connection) -> None:
    """Withdraw all claims: the service shows another history."""
    with immediate(connection):
        connection.execute("DELETE FROM coverage")
        connection.execute("DELETE FROM places")
        connection.execute("DELETE FROM service_traits WHERE name IN (?, ?)", _REREAD)


def mark_unread(connection: sqlite3.Connection, *, is_unread: bool) -> None:
    """Remember whether a list without readable times goes on below the part that was read."""
    with immediate(connection):
        if is_unread:
            connection.execute("INSERT OR IGNORE INTO service_traits (name, value) VALUES ('unread', '1')")
            # Runs were missed, so a list that never ended has to be walked again.
            connection.execute("DELETE FROM service_traits WHERE name = 'endless'")
        else:
            connection.execute("DELETE FROM service_traits WHERE name = 'unread'")


def is_unread(connection: sqlite3.Connection) -> bool:
    """Whether a list without readable times goes on below the part that was read."""
    return connection.execute("SELECT 1 FROM service_traits WHERE name = 'unread'").fetchone() is not None


def keep_pass(connection: sqlite3.Connection, since: datetime, as_of: datetime) -> None:
    """Remember a finished pass of the re-reading: the creation it reached, and when it began."""
    with immediate(connection):
        keep_values(connection, reread_since_us=to_us(since), reread_as_of_us=to_us(as_of))


def drop_anchor(connection: sqlite3.Connection) -> None:
    """Remember the newest run that is held now: no run is missing among those up to it."""
    with immediate(connection):
        connection.execute(
            "INSERT INTO service_traits (name, value) SELECT 'anchor', coalesce(max(id), 0) FROM runs WHERE true"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value"
        )


def anchored(connection: sqlite3.Connection, run_ids: Sequence[str]) -> frozenset[str] | None:
    """Which of these runs were held at the last `drop_anchor`. None: it was never called."""
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
    """The ranges that are held completely, and as of when."""
    with snapshot(connection):
        return _coverage(connection)


def _coverage(connection: sqlite3.Connection) -> Coverage:
    held = connection.execute("SELECT start_us, end_us, as_of_us FROM coverage ORDER BY end_us DESC").fetchall()
    dropped = connection.execute("SELECT dropped FROM links WHERE subject = 'runs'").fetchone()
    first_us = None
    if held and held[0][0] == NO_TIME_US:
        readable = "SELECT min(created_us) FROM runs WHERE created_us > ?"
        (first_us,) = connection.execute(readable, (NO_TIME_US,)).fetchone()
    reread = trait_values(connection, _REREAD)
    if reread:
        (dropped_us,) = connection.execute("SELECT max(dropped_until_us) FROM retention").fetchone()
        reread["reread_since_us"] = max(reread["reread_since_us"], (dropped_us or NO_TIME_US) + 1)
    return Coverage(
        ranges=tuple(CoverageRange(from_us_or_none(start), from_us_or_none(end)) for start, end, _ in held),
        as_of=from_us_or_none(held[0][2]) if held else None,
        first_run_at=from_us_or_none(first_us),
        reread=RereadCoverage(*(from_us(reread[name]) for name in _REREAD)) if reread else None,
        dropped=dropped[0] if dropped else 0,
    )
