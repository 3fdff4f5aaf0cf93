"""The audit: every step of every action, added as it happens and never changed."""

import sqlite3
from collections import defaultdict
from dataclasses import astuple
from datetime import datetime
from typing import Final

from storage.ledger.queries import select
from storage.records import AuditEntry, Author
from storage.records.action import UnknownSpan
from storage.values import from_us, sqlite_text, sqlite_text_or_none, to_us

_UNKNOWN_FROM: Final = frozenset({"unknown", "resolution_undone", "reopened"})
_UNKNOWN_UNTIL: Final = frozenset({"resolved_created", "resolved_not_created", "sent_again"})


def add(
    connection: sqlite3.Connection, action_id: str, transition: str, detail: str | None, author: Author, at: datetime
) -> None:
    """Record a step, in the transaction of the step itself."""
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


def unknown_spans(connection: sqlite3.Connection) -> tuple[UnknownSpan, ...]:
    """The stretches in which outcomes were unknown, by action and in order."""
    steps: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for action_id, transition, at_us in connection.execute(
        "SELECT action_id, transition, at_us FROM audit ORDER BY seq"
    ):
        if transition in _UNKNOWN_FROM | _UNKNOWN_UNTIL:
            steps[action_id].append((transition, at_us))
    spans: list[UnknownSpan] = []
    for action_id, taken in steps.items():
        for action in select(connection, "WHERE action_id = ?", (action_id,)):
            for (transition, at_us), later in zip(taken, [*taken[1:], None], strict=True):
                if transition in _UNKNOWN_FROM:
                    spans.append(UnknownSpan(action, from_us(at_us), None if later is None else from_us(later[1])))
    return tuple(spans)
