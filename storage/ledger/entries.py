"""Entering an action: checked and written under one lock, so that only one of two processes gets a key."""

import secrets
import sqlite3
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Final

from storage.ledger import audit
from storage.ledger.errors import AlreadyDoneError, KeyTakenError, NoSuchActionError, SubjectBlockedError
from storage.ledger.owner import Owner
from storage.ledger.queries import PREFIX, by_id, select
from storage.records import OPEN_STATES, UNUSED_STATES, Action, ActionKind, Author
from storage.values import sqlite_text, sqlite_text_or_none, to_us

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
    return "".join(_ALPHABET[(number >> (_BITS * digit)) & 31] for digit in reversed(range(count)))


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
    base_url: str | None
    author: Author
    again: bool
    """Whether it may repeat a confirmed action on the same subject."""


def prepare(connection: sqlite3.Connection, entry: Entry, owner: Owner, at: datetime) -> Action:
    """Enter the action, inside the caller's transaction; raises as `Ledger.prepare`."""
    check(connection, entry.kind, entry.subject, entry.key, again=entry.again)
    connection.execute(
        "INSERT INTO actions (action_id, kind, subject, key, path, body_json, actor, state, created_us,"
        " base_url, user, host, surface, owner_pid, owner_started, owner_boot, owner_namespace)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'prepared', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.action_id,
            entry.kind,
            *map(sqlite_text, (entry.subject, entry.key, entry.path, entry.body_json, entry.actor)),
            to_us(at),
            *map(sqlite_text_or_none, (entry.base_url, *astuple(entry.author))),
            *astuple(owner),
        ),
    )
    audit.add(connection, entry.action_id, "prepared", entry.base_url, entry.author, at)
    return existing(connection, entry.action_id)


def check(connection: sqlite3.Connection, kind: ActionKind, subject: str, key: str | None, *, again: bool) -> None:
    """Check that such an action may be entered; raises as `Ledger.prepare`. Without a `key` it gets its own."""
    if key is not None:
        refuse_taken_key(connection, key)
    refuse_blocked(connection, kind, subject)
    if not again:
        _refuse_done(connection, kind, subject)


def existing(connection: sqlite3.Connection, action_id: str) -> Action:
    """The action with this id; raises `NoSuchActionError`."""
    action = by_id(connection, action_id)
    if action is None:
        raise NoSuchActionError(action_id)
    return action


def refuse_taken_key(connection: sqlite3.Connection, key: str) -> None:
    """Check that no action used the key up; raises `KeyTakenError`."""
    marks = ", ".join("?" * len(UNUSED_STATES))
    for taken in select(connection, f"WHERE key = ? AND state NOT IN ({marks})", (sqlite_text(key), *UNUSED_STATES)):
        raise KeyTakenError(taken)


def refuse_blocked(connection: sqlite3.Connection, kind: ActionKind, subject: str) -> None:
    """Check that no action of the kind has an open outcome for the subject; raises `SubjectBlockedError`."""
    if not subject:
        return
    marks = ", ".join("?" * len(OPEN_STATES))
    blocking = select(
        connection,
        f"WHERE kind = ? AND subject = ? AND resolution IS NULL AND state IN ({marks})",
        (kind, sqlite_text(subject), *OPEN_STATES),
    )
    for other in blocking:
        raise SubjectBlockedError(other)


def _refuse_done(connection: sqlite3.Connection, kind: ActionKind, subject: str) -> None:
    if not subject:
        return
    done = select(
        connection,
        "WHERE kind = ? AND subject = ? AND state = 'confirmed' ORDER BY seq DESC LIMIT 1",
        (kind, sqlite_text(subject)),
    )
    for other in done:
        raise AlreadyDoneError(other)
