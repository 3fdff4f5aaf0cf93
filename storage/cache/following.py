"""Following: followed runs, and changes of status since the last report."""

import re
import sqlite3
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from storage.cache import stuck
from storage.cache.coverage import load_note
from storage.cache.polls import budget
from storage.cache.questions import due
from storage.cache.read_runs import COLUMNS, row_of
from storage.cache.run_sql import FINAL_SQL
from storage.cache.schema import make_index
from storage.database import execute, scalar, snapshot
from storage.records import CANCELLED
from storage.records.following import PinnedRun, RunEvent, RunEvents, StatusChange, StatusChanges, Watermark
from storage.values import from_us_or_none, record_of, records, to_us

PIN_KEPT: Final = timedelta(days=1)
"""How long a finished run stays followed, so that it is still there the next morning."""
PIN_CAP: Final = 100
"""How many runs can be followed at a time; the one followed longest makes room for a new one."""
_RUN: Final = "r.run_id, r.repository, r.branch"
_REST: Final = "r.active_since_us - r.worked_us, EXISTS (SELECT 1 FROM pins AS p WHERE p.run_id = r.run_id)"


def pin(connection: sqlite3.Connection, run_id: str, at: datetime) -> None:
    """Follow a run until it ends; nothing changes if it is followed already."""
    # A followed run is shown with the figures of its repository.
    make_index(connection, "repository")
    execute(connection, "INSERT INTO pins (run_id, pinned_us) VALUES (?, ?) ON CONFLICT DO NOTHING", run_id, at)
    query = "SELECT run_id FROM runs WHERE is_final AND updated_us < ?1"
    execute(connection, f"DELETE FROM pins WHERE pinned_us < ?1 AND run_id IN ({query})", at - PIN_KEPT)
    newest = "SELECT run_id FROM pins ORDER BY pinned_us DESC LIMIT ?"
    execute(connection, f"DELETE FROM pins WHERE run_id NOT IN ({newest})", PIN_CAP)


def unpin(connection: sqlite3.Connection, run_id: str) -> bool:
    return execute(connection, "DELETE FROM pins WHERE run_id = ?", run_id).rowcount > 0


def pins(connection: sqlite3.Connection) -> tuple[PinnedRun, ...]:
    """The followed runs: active ones first, each group by when it was followed."""
    with snapshot(connection):
        pins = connection.execute(
            f"SELECT p.run_id, s.run IS NOT NULL, {COLUMNS} FROM pins AS p"
            " LEFT JOIN runs AS r ON r.run_id = p.run_id LEFT JOIN stuck AS s ON s.run = r.id"
            " ORDER BY p.pinned_us, p.run_id"
        ).fetchall()
        rows = [(run_id, is_stuck, row_of(row) if row[0] is not None else None) for run_id, is_stuck, *row in pins]
        figures = stuck.durations(connection, {row.repository for *_, row in rows if row is not None})
    runs = [
        PinnedRun(run_id, row, figures.get(row.repository) if row is not None else None, bool(is_stuck))
        for run_id, is_stuck, row in rows
    ]
    return tuple(sorted(runs, key=lambda pinned: pinned.row is None or pinned.row.is_final))


def saved_watermark(connection: sqlite3.Connection) -> Watermark:
    """The stored watermark; without one, everything held now counts as reported."""
    with snapshot(connection):
        row = connection.execute("SELECT transition_id, run, kept_us FROM mark").fetchone()
        if row is None:
            return _watermark(connection)
        return record_of(Watermark, row)


def save_watermark(connection: sqlite3.Connection, here: Watermark, at: datetime) -> None:
    """Store the watermark for the next report, of any process; it never goes back."""
    sql = (
        "INSERT INTO mark (one, transition_id, run, kept_us) VALUES (1, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET"
        " transition_id = max(transition_id, excluded.transition_id), run = max(run, excluded.run),"
        " kept_us = max(kept_us, excluded.kept_us)"
        " WHERE excluded.transition_id > transition_id OR excluded.run > mark.run"
    )
    execute(connection, sql, here.transition, here.run, at)


def changes(connection: sqlite3.Connection, after: Watermark, since: datetime, limit: int = 1_000) -> StatusChanges:
    """Changes of status after the watermark, in runs first seen before it or since `since`; the newest `limit`."""
    with snapshot(connection):
        ahead = budget(connection).clock_ahead
        watermark = _watermark(connection)
        moved = connection.execute(
            f"SELECT {_RUN}, t.old, t.new, t.at_us, t.after_us, {_REST}, t.new IN ({FINAL_SQL})"
            " FROM transitions AS t JOIN runs AS r ON r.id = t.run"
            " WHERE t.id > ? ORDER BY t.id DESC LIMIT ?",
            (after.transition, limit),
        ).fetchall()
        # Runs that the backfill fetched are new to the cache, but their changes are old.
        first_seen = connection.execute(
            f"SELECT {_RUN}, NULL, r.first_status, r.first_at_us, r.after_us, {_REST}, r.first_status IN ({FINAL_SQL})"
            " FROM runs AS r WHERE r.id > ? AND max(r.first_at_us - ?, r.after_us) >= ? ORDER BY r.id DESC LIMIT ?",
            (after.run, ahead // timedelta(microseconds=1), to_us(since), limit),
        ).fetchall()
    changes = records(StatusChange, (*first_seen, *moved))
    return StatusChanges(tuple(sorted(changes, key=lambda change: change.at)), watermark, ahead)


def events(connection: sqlite3.Connection, cursor: str, limit: int, *, holds_failures: bool) -> RunEvents | None:
    """The first events after a cursor, at most `limit`; None if the cursor is from another cache or events are gone.

    An empty cursor means the place before the oldest event, `now` the one after the newest. A failure that turned out
    to be a cancellation is left out, unless it was returned before that was known.

    `holds_failures`: stop at a failure while it is not known which failed runs were cancelled.
    """
    with snapshot(connection):
        identity = f"{load_note(connection, 'identity'):x}"
        bounds = "SELECT coalesce(min(id), 1) - 1, coalesce(max(id), 0) FROM events"
        oldest, newest = connection.execute(bounds).fetchone()
        name, _, text = {"": f"{identity}.{oldest}", "now": f"{identity}.{newest}"}.get(cursor, cursor).partition(".")
        if name != identity or not re.fullmatch("[0-9]{1,18}", text) or not oldest <= int(text) <= newest:
            return None
        columns = "run_id, repository, branch, old, new, at_us, ? || '.' || id"
        sql = f"SELECT {columns} FROM events WHERE id > ? ORDER BY id LIMIT ?"
        read = records(RunEvent, execute(connection, sql, identity, int(text), limit))
        is_held = holds_failures and due(connection) > 0
    events = [*takewhile(lambda event: event.new != "failed", read)] if is_held else read
    last = events[-1].cursor if events else f"{identity}.{text}"
    # Failures that turned out to be cancellations are left out.
    shown: dict[str, RunEvent] = {}
    failures: dict[str, RunEvent] = {}
    for event in events:
        failure = failures.pop(event.run_id, None)
        if failure and (event.old, event.new, event.at) == ("failed", CANCELLED, failure.at):
            del shown[failure.cursor]
            event = replace(event, old=failure.old)  # noqa: PLW2901 — the event only gets its earlier status
        if event.new == "failed":
            failures[event.run_id] = event
        if event.old != event.new:
            shown[event.cursor] = event
    return RunEvents(tuple(shown.values()), last, is_held=len(events) < len(read))


def newest_creation(connection: sqlite3.Connection) -> datetime | None:
    """The creation of the newest run, by the service's clock; None: no run with a time was ever held."""
    return from_us_or_none(scalar(connection, "SELECT max(newest_us) FROM repositories"))


def _watermark(connection: sqlite3.Connection) -> Watermark:
    newest = (scalar(connection, f"SELECT coalesce(max(id), 0) FROM {table}") for table in ("transitions", "runs"))
    return Watermark(*newest)
