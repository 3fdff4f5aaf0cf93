"""The audit: every step of every action, added when it happens and never changed."""

import sqlite3
from dataclasses import astuple
from datetime import datetime

from storage.records import AuditEntry, Author
from storage.values import from_us, sqlite_text, sqlite_text_or_none, to_us


def add(
    connection: sqlite3.Connection, action_id: str, transition: str, detail: str | None, author: Author, at: datetime
) -> None:
    """Record a step; the caller's transaction holds the step itself, too."""
    connection.execute(
        "INSERT INTO audit (at_us, action_id, transition, detail, user, host, surface) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (to_us(at), action_id, transition, *map(sqlite_text_or_none, (detail, *astuple(author)))),
    )


def of_action(connection: sqlite3.Connection, action_id: str) -> tuple[AuditEntry, ...]:
    """The action's steps, oldest first; none for a step taken before Runwarden kept an audit."""
    found = connection.execute(
        "SELECT at_us, action_id, transition, detail, user, host, surface FROM audit WHERE action_id = ? ORDER BY seq",
        (sqlite_text(action_id),),
    )
    return tuple(
        AuditEntry(from_us(at_us), action_id, transition, detail, Author(*by))
        for at_us, action_id, transition, detail, *by in found.fetchall()
    )
