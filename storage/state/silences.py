"""Silences: groups without news for a time."""

import sqlite3
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from storage.database import immediate
from storage.records.alert import Silence
from storage.values import from_us, sqlite_text, to_us

if TYPE_CHECKING:
    from sqlite_utils import Database

KEPT: Final = timedelta(days=90)
_COLUMNS: Final = "id, pattern, until_us, reason, made_us"


def create(db: "Database") -> None:
    """Create the table."""
    columns = {"id": int, "pattern": str, "until_us": int, "reason": str, "made_us": int}
    db.table("silences", strict=True).create(columns, pk="id", not_null=set(columns))


def add_silence(connection: sqlite3.Connection, pattern: str, until: datetime, reason: str, now: datetime) -> Silence:
    """Silence the groups that match the glob."""
    with immediate(connection):
        connection.execute("DELETE FROM silences WHERE until_us < ?", (to_us(now - KEPT),))
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
    rows = connection.execute(f"SELECT {_COLUMNS} FROM silences WHERE until_us > ? ORDER BY id", (to_us(now),))
    return tuple(
        Silence(number, pattern, from_us(until), reason, from_us(made))
        for number, pattern, until, reason, made in rows.fetchall()
    )
