"""Coverage: the ranges of creation times of which every run is held; they grow page by page."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate, snapshot
from storage.records import Coverage, CoverageRange, RereadCoverage
from storage.values import NO_TIME_US, from_us, from_us_or_none, sqlite_text, to_sortable_us, to_us

_MICROSECOND: Final = timedelta(microseconds=1)
_STEP_US: Final = timedelta(seconds=5) // _MICROSECOND
"""A smaller change of the difference between the clocks is noise: answers take time, and have whole seconds."""
_MARGIN_US: Final = timedelta(seconds=2) // _MICROSECOND
_FUTURE_US: Final = timedelta(minutes=5) // _MICROSECOND
"""An `as_of` this far in the future was stored before our clock was set back."""
_BEHIND: Final = ("behind_from_us", "behind_until_us")
"""Traits that exist while the service's clock, after it was set back, has not caught up: the creation time above which
nothing is claimed, and when it will have caught up, by its own clock."""
_CLOCK: Final = ("clock_ahead_us", "clock_judged", *_BEHIND)
"""The traits that store how far the service's clock was ahead in its last answer, and whether run times were compared
with it; and `_BEHIND`."""
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
        if (behind_from_us := _clock(connection).get("behind_from_us")) is not None:
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


def note_clock(connection: sqlite3.Connection, ahead: timedelta, now: datetime, newest: datetime | None = None) -> bool:
    """Store how far the service's clock is ahead of ours; return whether it was set back and has not caught up yet.

    After it was set back, new runs appear in the list among those that are held already. Until it has caught up,
    no coverage is claimed beyond the service's present.

    Args:
        connection: The cache's writer.
        ahead: How far it is ahead, by the last answer.
        now: When the request was sent whose answer is to be claimed, by our clock.
        newest: The latest time in the list. None: it shows no time that is certain.
    """
    ahead_us, now_us, newest_us = ahead // _MICROSECOND, to_us(now), to_sortable_us(newest)
    known = _clock(connection)
    before_us, until_us = known.get("clock_ahead_us"), known.get("behind_until_us")
    # The first certain times show whether the clock was set back before the first answer.
    is_first = newest is not None and "clock_judged" not in known
    is_step = before_us is None or abs(ahead_us - before_us) > _STEP_US
    if not is_step and not is_first and until_us is None:
        return False
    with immediate(connection):
        if before_us is not None and ahead_us < before_us - _STEP_US:
            until_us = max(until_us or 0, _set_back(connection, now_us, ahead_us, newest_us, before_us))
        elif is_first and newest_us > now_us + ahead_us + _MARGIN_US:
            until_us = max(until_us or 0, _set_back(connection, now_us, ahead_us, newest_us))
        if is_step:
            _keep(connection, clock_ahead_us=ahead_us)
        if is_first:
            _keep(connection, clock_judged=1)
        is_behind = until_us is not None and now_us + ahead_us < until_us
        if is_behind:
            _keep(connection, behind_until_us=until_us or 0)
        else:
            connection.execute("DELETE FROM service_traits WHERE name IN (?, ?)", _BEHIND)
    return is_behind


def _set_back(
    connection: sqlite3.Connection, now_us: int, ahead_us: int, newest_us: int, before_us: int | None = None
) -> int:
    """Withdraw claims above the service's present; return until when its clock is behind, by that clock.

    `before_us`: how far it was ahead before. None: not known.
    """
    held = connection.execute("SELECT end_us, as_of_us FROM coverage ORDER BY end_us DESC LIMIT 1").fetchone()
    # Nothing else is known of the present than that the claims were true before it.
    end_us, as_of_us = held or (NO_TIME_US if newest_us == NO_TIME_US else now_us + ahead_us, now_us)
    by_us = max(0, end_us - as_of_us - ahead_us) if before_us is None else before_us - ahead_us if held else 0
    from_us = NO_TIME_US if end_us == NO_TIME_US else max(NO_TIME_US, end_us - by_us - _MARGIN_US)
    connection.execute("DELETE FROM coverage WHERE start_us > ?", (from_us,))
    connection.execute("UPDATE coverage SET end_us = min(end_us, ?)", (from_us,))
    if held or from_us != NO_TIME_US:
        # If no range is left, an instant is stored, so that what is below it counts as missing and is fetched.
        connection.execute(
            "INSERT INTO coverage (start_us, end_us, as_of_us)"
            " SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM coverage)",
            (from_us, from_us, NO_TIME_US),
        )
    _keep(connection, behind_from_us=from_us)
    if before_us is None:
        return newest_us + _MARGIN_US
    former_us = now_us + before_us if newest_us == NO_TIME_US else newest_us + _MARGIN_US
    return max(former_us, as_of_us + before_us if held else former_us)


def _clock(connection: sqlite3.Connection) -> dict[str, int]:
    return _values(connection, _CLOCK)


def _values(connection: sqlite3.Connection, names: Sequence[str]) -> dict[str, int]:
    marks = ", ".join("?" * len(names))
    held = connection.execute(f"SELECT name, value FROM service_traits WHERE name IN ({marks})", names)
    return {name: int(value) for name, value in held.fetchall()}


def _keep(connection: sqlite3.Connection, **values_us: int) -> None:
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
        _keep(connection, reread_since_us=to_us(since), reread_as_of_us=to_us(as_of))


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
    reread = _values(connection, _REREAD)
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
