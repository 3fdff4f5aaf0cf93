"""Entering an action: checked and written under one lock, so that only one of two processes gets a key."""

import secrets
import sqlite3
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Final

from storage.database import immediate
from storage.ledger.errors import KeyTakenError, NoSuchActionError, SubjectBlockedError
from storage.ledger.owner import Owner
from storage.ledger.queries import PREFIX, by_id, select
from storage.records import OPEN_STATES, Action, ActionKind
from storage.values import sqlite_text, to_us

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no letter that looks like a digit."""

_TIME_DIGITS: Final = 10
_RANDOM_DIGITS: Final = 16
_BITS: Final = 5
_MILLISECOND_US: Final = 1000


def new_action_id(at: datetime) -> str:
    """`act_` and 26 characters: 48 bits of milliseconds, then 80 random ones."""
    milliseconds = to_us(at) // _MILLISECOND_US
    return PREFIX + _digits(milliseconds, _TIME_DIGITS) + _digits(secrets.randbits(80), _RANDOM_DIGITS)


def _digits(number: int, count: int) -> str:
    return "".join(_ALPHABET[(number >> (_BITS * place)) & 31] for place in reversed(range(count)))


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
    """Enter the action; raises as `Ledger.prepare`."""
    with immediate(connection):
        _refuse_taken(connection, entry)
        connection.execute(
            "INSERT INTO actions (action_id, kind, subject, key, path, body_json, actor, state, created_us,"
            " owner_pid, owner_started, owner_boot, owner_namespace)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 'prepared', ?, ?, ?, ?, ?)",
            (
                entry.action_id,
                entry.kind,
                *map(sqlite_text, (entry.subject, entry.key, entry.path, entry.body_json, entry.actor)),
                to_us(at),
                *astuple(owner),
            ),
        )
        return existing(connection, entry.action_id)


def existing(connection: sqlite3.Connection, action_id: str) -> Action:
    """The action with this id; raises `NoSuchActionError`."""
    action = by_id(connection, action_id)
    if action is None:
        raise NoSuchActionError(action_id)
    return action


def _refuse_taken(connection: sqlite3.Connection, entry: Entry) -> None:
    for taken in select(connection, "WHERE key = ?", (sqlite_text(entry.key),)):
        raise KeyTakenError(taken)
    if not entry.subject:
        return
    marks = ", ".join("?" * len(OPEN_STATES))
    blocking = select(
        connection,
        f"WHERE kind = ? AND subject = ? AND resolution IS NULL AND state IN ({marks})",
        (entry.kind, sqlite_text(entry.subject), *OPEN_STATES),
    )
    for other in blocking:
        raise SubjectBlockedError(other)
