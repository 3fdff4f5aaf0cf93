"""What a person put away: marks on the inbox's items (done, snoozed, muted), and silenced groups of alerts."""

import sqlite3
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from storage.database import immediate
from storage.records.alert import Silence
from storage.records.inbox import Mark
from storage.values import from_us, from_us_or_none, sqlite_text, to_us

if TYPE_CHECKING:
    from sqlite_utils import Database

MARK_KEPT: Final = timedelta(days=400)
"""How long a mark is kept, unless it mutes its item."""
LEVELS: Final = 20
"""How many changes can be undone."""
SILENCE_KEPT: Final = timedelta(days=90)
"""How long a silence is kept after its end."""
_MARK: Final = "done_us, snoozed_us, muted, seen_us"
_SILENCE: Final = "id, pattern, until_us, reason, made_us"


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


def create_silences(db: "Database") -> None:
    """Create the table of silences."""
    columns = {"id": int, "pattern": str, "until_us": int, "reason": str, "made_us": int}
    db.table("silences", strict=True).create(columns, pk="id", not_null=set(columns))


def add_silence(connection: sqlite3.Connection, pattern: str, until: datetime, reason: str, now: datetime) -> Silence:
    """Silence the groups that match the pattern, a glob."""
    with immediate(connection):
        connection.execute("DELETE FROM silences WHERE until_us < ?", (to_us(now - SILENCE_KEPT),))
        added = connection.execute(
            "INSERT INTO silences (pattern, until_us, reason, made_us) VALUES (?, ?, ?, ?)",
            (sqlite_text(pattern), to_us(until), sqlite_text(reason), to_us(now)),
        )
    return Silence(added.lastrowid or 0, pattern, until, reason, now)


def end_silence(connection: sqlite3.Connection, silence_id: int, now: datetime) -> bool:
    """End a silence now; return whether it was in force."""
    query = "UPDATE silences SET until_us = ? WHERE id = ? AND until_us > ?"
    with immediate(connection):
        return connection.execute(query, (to_us(now), silence_id, to_us(now))).rowcount > 0


def active_silences(connection: sqlite3.Connection, now: datetime) -> tuple[Silence, ...]:
    """The silences in force, oldest first."""
    rows = connection.execute(f"SELECT {_SILENCE} FROM silences WHERE until_us > ? ORDER BY id", (to_us(now),))
    return tuple(
        Silence(number, pattern, from_us(until), reason, from_us(made))
        for number, pattern, until, reason, made in rows.fetchall()
    )
