"""Coverage: the complete ranges of creation times, the places at which walks stopped, and the state of the backfill."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from storage.database import execute, scalar, select_in, snapshot
from storage.records import CLOCK_STEP, Coverage, CoverageRange
from storage.records.coverage import BackfillProgress, History, ListPlace
from storage.values import NO_TIME_US, from_us, from_us_or_none, records, to_sortable_us, to_us

REMEMBERED: Final = timedelta(days=1)
"""How long it counts as known that the service offers no results: it may have been updated."""
CLEAR_DIFFERENCE: Final = timedelta(seconds=5)
"""A creation and a last change this far apart show which of them a filter uses."""
SILENT: Final = timedelta(seconds=10)
"""A process that backfills reports its progress more often than this, unless it waits."""
_MICROSECOND: Final = timedelta(microseconds=1)
# Among 200 runs on each side.
_NEIGHBOUR: Final = """
SELECT created_us FROM (
    SELECT * FROM (
        SELECT run_id, created_us, updated_us, presence FROM runs WHERE created_us BETWEEN ?1 + 1 AND ?2
        ORDER BY created_us DESC, run_id DESC LIMIT 200
    ) UNION ALL SELECT * FROM (
        SELECT run_id, created_us, updated_us, presence FROM runs WHERE created_us > ?2
        ORDER BY created_us, run_id LIMIT 200
    )
) WHERE updated_us > created_us + ?3 AND run_id <> ?4 AND presence = 'current'
ORDER BY abs(created_us - ?2), created_us LIMIT 1
"""


def record_walk(
    connection: sqlite3.Connection,
    complete: CoverageRange | None,
    as_of: datetime,
    token: str | None,
    total: int | None,
    *,
    is_odd: bool,
    ended: bool,
) -> None:
    """Record the part that a walk from the newest run, which began at `as_of` by our clock, has read so far.

    The walk `ended` if the list was read to its end. No complete range: the list, which `is_odd` if it is out of order,
    proves nothing. No token of a next page: nothing is missing there.
    """
    if complete is not None:
        extend(connection, complete.start, complete.end, as_of)
    if complete is not None or ended:
        execute(connection, "DELETE FROM places WHERE bottom_us = ?", NO_TIME_US)
    if token is not None:
        store_place(connection, complete.start if complete else None, token, total)
    connection.execute("DELETE FROM notes WHERE name = 'out_of_order'")
    if is_odd:
        store_note(connection, "out_of_order", 1)
    store_note(connection, "walked", scalar(connection, "SELECT seq FROM sqlite_sequence WHERE name = 'runs'") or 0)


def unwalked_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> set[str]:
    """The runs among these that came into the cache since a walk was last recorded.

    They prove nothing about the runs below them: a process may have ended between storing and recording its page, or
    a filtered list may have shown them.
    """
    sql = "SELECT run_id FROM runs WHERE id > ? AND run_id IN (?)"
    return {run_id for (run_id,) in select_in(connection, sql, run_ids, load_note(connection, "walked") or 0)}


def extend(
    connection: sqlite3.Connection, start: datetime | None, end: datetime | None, as_of: datetime | None = None
) -> Coverage:
    """Record that every run created from start to end, both inclusive, is held, and merge the ranges that touch.

    No start: from the very first run. No end: the list was empty, or its times cannot be read. Until `as_of`, by this
    machine's clock, nothing is missing above `start`; without it, runs above `end` are unknown.
    """
    start_us, end_us, as_of_us = map(to_sortable_us, (start, end, as_of))
    if start_us > end_us:
        raise ValueError(f"A range cannot start at {start} and end before it, at {end}.")
    # Ranges also merge if one ends in the microsecond before the other starts.
    touched = {"start": start_us - 1, "end": end_us + 1}
    among = "FROM coverage WHERE start_us <= :end AND end_us >= :start"
    ends = f"SELECT min(start_us), max(end_us), max(as_of_us) {among}"
    first, last, known_us = connection.execute(ends, touched).fetchone()
    if as_of_us == NO_TIME_US and known_us is not None:
        as_of_us = known_us
    connection.execute(f"DELETE {among}", touched)
    connection.execute(
        "INSERT INTO coverage (start_us, end_us, as_of_us) VALUES (?, ?, ?)",
        (start_us if first is None else min(start_us, first), end_us if last is None else max(end_us, last), as_of_us),
    )
    return coverage(connection)


def compare_clocks(connection: sqlite3.Connection, ahead: timedelta) -> bool:
    """Note the lead of the service's clock over this machine's; return whether it was set back, which voids claims.

    Later runs are then dated and listed among known ones. A range that was complete as of a time by our clock now ends
    at the service's time of that moment.
    """
    ahead_us = ahead // _MICROSECOND
    step_us = CLOCK_STEP // _MICROSECOND
    before = load_note(connection, "clock_ahead_us")
    if before is not None and abs(ahead_us - before) <= step_us:
        return False
    store_note(connection, "clock_ahead_us", ahead_us)
    as_of_us = scalar(connection, "SELECT as_of_us FROM coverage ORDER BY end_us DESC LIMIT 1")
    if before is None or ahead_us > before or as_of_us is None:
        return False
    # Times from before the clock was set back cannot be ordered.
    connection.execute("DELETE FROM written")
    present_us = as_of_us + ahead_us - step_us
    execute(connection, "DELETE FROM coverage WHERE start_us > ?", present_us)
    execute(connection, "UPDATE coverage SET end_us = min(end_us, ?)", present_us)
    return True


def forget(connection: sqlite3.Connection) -> None:
    """Withdraw all claims: the service shows another history."""
    connection.execute("DELETE FROM coverage")
    connection.execute("DELETE FROM places")


def coverage(connection: sqlite3.Connection) -> Coverage:
    """The ranges that are held completely, and as of when."""
    with snapshot(connection):
        rows = connection.execute("SELECT start_us, end_us, as_of_us FROM coverage ORDER BY end_us DESC").fetchall()
        first_us = None
        if rows and rows[0][0] == NO_TIME_US:
            first_us = scalar(connection, "SELECT min(created_us) FROM runs WHERE created_us > ?", NO_TIME_US)
        return Coverage(
            ranges=records(CoverageRange, rows),
            as_of=from_us_or_none(rows[0][2]) if rows else None,
            first_run_at=from_us_or_none(first_us),
            is_disordered=load_note(connection, "out_of_order") is not None,
            dropped=scalar(connection, "SELECT dropped FROM links WHERE subject = 'runs'") or 0,
        )


def history(connection: sqlite3.Connection, now: datetime) -> History:
    """The coverage, and how far the backfill came."""
    with snapshot(connection):
        return History(
            coverage(connection),
            scalar(connection, "SELECT 1 FROM places WHERE bottom_us = ?", NO_TIME_US) is not None,
            bool(load_note(connection, "is_backfill_paused")),
            from_us_or_none(load_note(connection, "dropped_until_us")),
            _progress(connection, now),
        )


def neighbour(connection: sqlite3.Connection, at: datetime, but_not: str) -> datetime | None:
    """The creation time nearest to `at` of another current run that changed clearly later; None if none is near."""
    return from_us_or_none(scalar(connection, _NEIGHBOUR, NO_TIME_US, at, CLEAR_DIFFERENCE // _MICROSECOND, but_not))


def place(connection: sqlite3.Connection, bottom: datetime | None) -> ListPlace | None:
    """Where the walk down to this creation time stopped; None if no walk reached it."""
    row = execute(connection, "SELECT token, total FROM places WHERE bottom_us = ?", to_sortable_us(bottom)).fetchone()
    return None if row is None else ListPlace(*row)


def store_place(
    connection: sqlite3.Connection, bottom: datetime | None, token: str | None, total: int | None = None
) -> None:
    """Store where the walk down to this creation time stopped. No token: it reached the end of the list.

    No bottom: the list's order proves nothing.
    """
    bottom_us = to_sortable_us(bottom)
    execute(connection, "DELETE FROM places WHERE bottom_us = ?", bottom_us)
    if token is not None:
        # Only the places below a complete range lead anywhere.
        below = "bottom_us <> ? AND bottom_us NOT IN (SELECT start_us FROM coverage)"
        execute(connection, f"DELETE FROM places WHERE {below}", NO_TIME_US)
        execute(connection, "INSERT INTO places (bottom_us, token, total) VALUES (?, ?, ?)", bottom_us, token, total)


def note_no_results(connection: sqlite3.Connection, at: datetime) -> None:
    """Remember that the service offers no results (docs/dev/api.md)."""
    store_note(connection, "no_results_us", to_us(at))


def has_no_results(connection: sqlite3.Connection, now: datetime) -> bool:
    """Whether the service was found within the last day to offer no results."""
    noted_at = from_us_or_none(load_note(connection, "no_results_us"))
    return noted_at is not None and abs(now - noted_at) < REMEMBERED


def store_note(connection: sqlite3.Connection, name: str, value: int) -> None:
    """Store one fact of the cache, inside the caller's transaction."""
    connection.execute("INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)", (name, value))


def load_note(connection: sqlite3.Connection, name: str) -> int | None:
    """A fact of the cache; None: it was never noted."""
    value: int | None = scalar(connection, "SELECT value FROM notes WHERE name = ?", name)
    return value


def pause_backfill(connection: sqlite3.Connection, *, paused: bool) -> None:
    store_note(connection, "is_backfill_paused", int(paused))


def store_progress(connection: sqlite3.Connection, now: datetime, progress: BackfillProgress) -> None:
    """Store the backfill's progress for other processes."""
    how_far = progress.phase, progress.done_runs, progress.estimated_runs, progress.seconds_left
    sql = "INSERT OR REPLACE INTO backfill_progress VALUES (1, ?, ?, ?, ?, ?, ?, ?)"
    execute(connection, sql, *how_far, progress.until, progress.why, now)


def _progress(connection: sqlite3.Connection, now: datetime) -> BackfillProgress | None:
    sql = "SELECT phase, done_runs, estimated_runs, seconds_left, until_us, why, told_us FROM backfill_progress"
    if (row := connection.execute(sql).fetchone()) is None:
        return None
    phase, done_runs, estimated_runs, seconds_left, until_us, reason, reported_us = row
    until, reported_at = from_us_or_none(until_us), from_us(reported_us)
    # A waiting process reports nothing until the wait is over.
    if not reported_at - SILENT <= now <= max(until or reported_at, reported_at) + SILENT:
        return None
    return BackfillProgress(phase, done_runs, estimated_runs, seconds_left=seconds_left, until=until, why=reason)
