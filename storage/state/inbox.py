"""What a person put away: marks on the inbox's items (done, snoozed, muted)."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.records.inbox import Mark
from storage.values import from_us_or_none, sqlite_text, to_us

MARK_KEPT: Final = timedelta(days=400)
"""How long a mark is kept, unless it mutes its item."""
LEVELS: Final = 20
"""How many changes can be undone."""
_MARK: Final = "done_us, snoozed_us, muted, seen_us"


def marks(connection: sqlite3.Connection) -> dict[str, Mark]:
    """Every mark, by its item's key."""
    rows = connection.execute(f"SELECT key, {_MARK} FROM inbox").fetchall()
    return {
        key: Mark(from_us_or_none(done), from_us_or_none(snoozed), bool(muted), from_us_or_none(seen))
        for key, done, snoozed, muted, seen in rows
    }


def mark(connection: sqlite3.Connection, marked: Mapping[str, Mark], at: datetime) -> None:
    """Mark items, and keep their earlier marks for `undo`."""
    if not marked:
        return
    with immediate(connection):
        (last,) = connection.execute("SELECT coalesce(max(step), 0) FROM inbox_undo").fetchone()
        connection.execute("DELETE FROM inbox_undo WHERE step <= ?", (last + 1 - LEVELS,))
        connection.execute("DELETE FROM inbox WHERE marked_us < ? AND NOT muted", (to_us(at - MARK_KEPT),))
        for key, one in marked.items():
            name = sqlite_text(key)
            before = connection.execute(f"SELECT {_MARK} FROM inbox WHERE key = ?", (name,)).fetchone()
            values = (last + 1, name, *(before or (None, None, 0, None)))
            connection.execute(f"INSERT INTO inbox_undo (step, key, {_MARK}) VALUES (?, ?, ?, ?, ?, ?)", values)
            done, snoozed, seen = (
                None if when is None else to_us(when) for when in (one.done_until, one.snoozed_until, one.seen_until)
            )
            _set(connection, name, (done, snoozed, int(one.is_muted), seen), at)


def undo(connection: sqlite3.Connection, at: datetime) -> tuple[str, ...]:
    """Undo the last change that was not undone yet; return its keys."""
    with immediate(connection):
        rows = connection.execute(
            f"DELETE FROM inbox_undo WHERE step = (SELECT max(step) FROM inbox_undo) RETURNING key, {_MARK}"
        ).fetchall()
        for key, *before in rows:
            _set(connection, key, tuple(before), at)
    return tuple(key for key, *_ in rows)


def _set(connection: sqlite3.Connection, key: str, values: tuple[int | None, ...], at: datetime) -> None:
    query = f"INSERT OR REPLACE INTO inbox (key, {_MARK}, marked_us) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(query, (key, *values, to_us(at)))
