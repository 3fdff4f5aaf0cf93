"""Pinned runs: which ones a person wants to see to their end."""

import sqlite3
from datetime import datetime, timedelta
from typing import Any, Final

from storage.cache.durations import durations
from storage.cache.read_runs import COLUMNS, row_of
from storage.database import immediate, snapshot
from storage.records import FINAL_STATUSES
from storage.records.following import PinnedRun, RunDurations
from storage.storable import storable
from storage.times import from_us, to_us

KEPT: Final = timedelta(days=1)
"""So long a run stays pinned after its end: whoever comes back from a night's sleep still finds it."""
CAP: Final = 100
"""Runs pinned at a time; the oldest pins make room."""

_REPOSITORY: Final = 8
"""Its place in a row of `pins`."""
_FINAL: Final = ", ".join(f"'{status}'" for status in sorted(FINAL_STATUSES))


def pin(connection: sqlite3.Connection, run_id: str, at: datetime) -> None:
    """Pin a run, and let go of those that ended long ago."""
    at_us = to_us(at)
    with immediate(connection):
        connection.execute(
            "INSERT INTO pins (run_id, pinned_us) VALUES (?, ?) ON CONFLICT DO NOTHING", (storable(run_id), at_us)
        )
        connection.execute(
            "DELETE FROM pins WHERE pinned_us < :before AND run_id IN"  # noqa: S608 — built from constants; values are bound
            f" (SELECT run_id FROM runs WHERE status IN ({_FINAL}) AND updated_us < :before)",
            {"before": at_us - KEPT // timedelta(microseconds=1)},
        )
        connection.execute(
            "DELETE FROM pins WHERE run_id NOT IN (SELECT run_id FROM pins ORDER BY pinned_us DESC LIMIT ?)", (CAP,)
        )


def unpin(connection: sqlite3.Connection, run_id: str) -> bool:
    """Let go of a run; whether it was pinned."""
    with immediate(connection):
        gone = connection.execute("DELETE FROM pins WHERE run_id = ?", (storable(run_id),))
    return gone.rowcount > 0


def unpin_ended(connection: sqlite3.Connection) -> int:
    """Let go of the runs that have ended, and of those that are not there any more; how many those were."""
    with immediate(connection):
        gone = connection.execute(
            "DELETE FROM pins WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.run_id = pins.run_id"  # noqa: S608 — built from constants
            f" AND r.status NOT IN ({_FINAL}) AND r.presence <> 'lost')"
        )
    return gone.rowcount


def pins(connection: sqlite3.Connection) -> tuple[PinnedRun, ...]:
    """The pinned runs: those still active first, each group by when it was pinned."""
    with snapshot(connection):
        found = connection.execute(
            "SELECT p.run_id, p.pinned_us, r.active_since_us, r.last_seen_us, s.run IS NOT NULL,"  # noqa: S608 — built from constants
            f" {COLUMNS}"
            " FROM pins AS p LEFT JOIN runs AS r ON r.run_id = p.run_id LEFT JOIN stuck AS s ON s.run = r.id"
            " ORDER BY p.pinned_us, p.run_id"
        ).fetchall()
        figures = durations(connection, (values[_REPOSITORY] for values in found if values[_REPOSITORY] is not None))
    runs = [_pinned(values, figures) for values in found]
    return tuple(sorted(runs, key=lambda pinned: pinned.row is None or pinned.row.is_final))


def _pinned(values: tuple[Any, ...], figures: dict[str, RunDurations]) -> PinnedRun:
    run_id, pinned_us, active_us, seen_us, is_stuck, *row = values
    if active_us is None:
        return PinnedRun(run_id, from_us(pinned_us))
    return PinnedRun(
        run_id=run_id,
        pinned_at=from_us(pinned_us),
        row=row_of(*row),
        active_since=from_us(active_us),
        last_seen_at=from_us(seen_us),
        durations=figures.get(values[_REPOSITORY]),
        is_stuck=bool(is_stuck),
    )
