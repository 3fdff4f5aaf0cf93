"""What a person did with the inbox's items: done, snoozed, muted; the items themselves are made when asked for."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime

from storage.database import immediate
from storage.records.inbox import Mark
from storage.values import from_us, from_us_or_none, sqlite_text, to_us


def marks(connection: sqlite3.Connection) -> dict[str, Mark]:
    """Every mark, by its item's key."""
    rows = connection.execute("SELECT key, done_us, snoozed_us, muted FROM inbox").fetchall()
    return {
        key: Mark(from_us_or_none(done), from_us_or_none(snoozed), bool(muted)) for key, done, snoozed, muted in rows
    }


def mark(connection: sqlite3.Connection, marked: Mapping[str, Mark], at: datetime) -> None:
    """Mark items, and remember how they were marked before, for `undo`."""
    with immediate(connection):
        connection.execute("DELETE FROM inbox_undo")
        for key, one in marked.items():
            name = sqlite_text(key)
            before = connection.execute(
                "SELECT done_us, snoozed_us, muted FROM inbox WHERE key = ?", (name,)
            ).fetchone()
            connection.execute("INSERT INTO inbox_undo VALUES (?, ?, ?, ?)", (name, *(before or (None, None, 0))))
            done, snoozed = (None if when is None else to_us(when) for when in (one.done_until, one.snoozed_until))
            connection.execute(
                "INSERT OR REPLACE INTO inbox (key, done_us, snoozed_us, muted, marked_us) VALUES (?, ?, ?, ?, ?)",
                (name, done, snoozed, int(one.is_muted), to_us(at)),
            )


def undo(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Take the last marking back; the keys of its items."""
    with immediate(connection):
        rows = connection.execute("DELETE FROM inbox_undo RETURNING key, done_us, snoozed_us, muted").fetchall()
        for row in rows:
            connection.execute(
                "INSERT OR REPLACE INTO inbox (key, done_us, snoozed_us, muted, marked_us) VALUES (?, ?, ?, ?, 0)", row
            )
    return tuple(key for key, *_ in rows)


def lease_until(connection: sqlite3.Connection, name: str) -> datetime | None:
    """Until when a lease is held; None: no process holds it."""
    row = connection.execute("SELECT until_us FROM leases WHERE name = ?", (name,)).fetchone()
    return None if row is None else from_us(row[0])
