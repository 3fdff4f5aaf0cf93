"""Entering an action: checked and written under one lock, so that of two claims one loses."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime

from storage.database import immediate
from storage.ledger import rows
from storage.ledger.errors import KeyTakenError, NoSuchActionError, SubjectBlockedError
from storage.ledger.owner import Owner
from storage.records import OPEN_STATES, Action, ActionKind
from storage.storable import storable
from storage.times import to_us


@dataclass(frozen=True, slots=True)
class Entry:
    """An action about to be entered."""

    action_id: str
    kind: ActionKind
    subject: str
    key: str
    path: str
    body_json: str
    actor: str


def prepare(connection: sqlite3.Connection, entry: Entry, owner: Owner, at: datetime) -> Action:
    """Enter the action.

    Raises:
        KeyTakenError: An action with the same key exists.
        SubjectBlockedError: An action of the same kind and subject still owes its outcome.
    """
    with immediate(connection):
        _refuse_taken(connection, entry)
        connection.execute(
            "INSERT INTO actions (action_id, kind, subject, key, path, body_json, actor, state, created_us,"
            " owner_pid, owner_started, owner_boot, owner_namespace)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 'prepared', ?, ?, ?, ?, ?)",
            (
                entry.action_id,
                entry.kind,
                storable(entry.subject),
                storable(entry.key),
                storable(entry.path),
                storable(entry.body_json),
                storable(entry.actor),
                to_us(at),
                owner.pid,
                owner.started,
                owner.boot,
                owner.namespace,
            ),
        )
        return existing(connection, entry.action_id)


def existing(connection: sqlite3.Connection, action_id: str) -> Action:
    """The action with this id.

    Raises:
        NoSuchActionError: There is none.
    """
    action = rows.by_id(connection, action_id)
    if action is None:
        raise NoSuchActionError(action_id)
    return action


def _refuse_taken(connection: sqlite3.Connection, entry: Entry) -> None:
    for taken in rows.select(connection, "WHERE key = ?", (storable(entry.key),)):
        raise KeyTakenError(taken)
    if not entry.subject:
        return
    marks = ", ".join("?" * len(OPEN_STATES))
    blocking = rows.select(
        connection,
        f"WHERE kind = ? AND subject = ? AND resolution IS NULL AND state IN ({marks})",
        (entry.kind, storable(entry.subject), *OPEN_STATES),
    )
    for other in blocking:
        raise SubjectBlockedError(other)
