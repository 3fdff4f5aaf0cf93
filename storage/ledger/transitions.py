"""How actions are added and change state: only by a table of legal transitions, even after a crash.

Each is checked and written under one lock, with its step in the audit, so that of two processes one gets a key.
"""

import sqlite3
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from storage.claims import Claims, Owner
from storage.database import execute, immediate
from storage.errors import AlreadyDoneError, KeyTakenError, NoSuchActionError, SubjectBlockedError, WrongStateError
from storage.ledger.queries import PREFIX, select
from storage.records import (
    OPEN_STATES,
    UNUSED_STATES,
    Action,
    ActionFailure,
    ActionKind,
    ActionState,
    Author,
    Resolution,
)
from storage.values import Value, bound, to_us

CLAIMS: Final = Claims("actions", "action_id", "state IN ('prepared', 'sending')")
CRASHED: Final = "crashed"
_APPLY: Final = """
UPDATE actions SET state = :state, resolution = :resolution, superseded_by = :superseded_by,
    sending_us = CASE :state WHEN 'sending' THEN :at WHEN 'not_sent' THEN NULL ELSE sending_us END,
    owned_us = CASE :state WHEN 'sending' THEN :at ELSE owned_us END,
    settled_us = CASE :state WHEN 'sending' THEN NULL ELSE coalesce(settled_us, :at) END,
    error_kind = coalesce(:kind, error_kind), error_message = coalesce(:message, error_message),
    error_status = coalesce(:http_status, error_status), error_code = coalesce(:error_code, error_code),
    response_json = coalesce(:response_json, response_json),
    result_id = CASE WHEN :undoes THEN NULL ELSE coalesce(:result_id, result_id) END
WHERE action_id = :action_id
"""
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no letter that looks like a digit."""


class Transition(Struct, frozen=True):
    """A change of state that the ledger allows."""

    name: str
    """The name in messages: "confirming is not possible from there"."""
    record: str
    """Its name in the audit."""
    sources: tuple[ActionState, ...]
    target: ActionState
    resolution: Resolution | None = None
    """The user's resolution that the transition records; None if the program makes the transition."""
    undoes: tuple[Resolution | None, ...] = (None,)
    """The resolutions that an action may have before it; None means no resolution."""


SENDING: Final = Transition("sending", "sending", ("prepared",), "sending")
CONFIRM: Final = Transition("confirming", "confirmed", ("sending",), "confirmed")
REJECT: Final = Transition("rejecting", "rejected", ("sending",), "rejected")
UNKNOWN: Final = Transition("giving up on the outcome", "unknown", ("sending",), "unknown")
NOT_SENT: Final = Transition("marking as not sent", "not_sent", ("prepared", "sending"), "not_sent")
SETTLING: Final = {"confirmed": CONFIRM, "rejected": REJECT, "unknown": UNKNOWN, "not_sent": NOT_SENT}
RESOLVE_CREATED: Final = Transition("resolving as created", "resolved_created", ("unknown",), "confirmed", "created")
RESOLVE_NOT_CREATED: Final = Transition(
    "resolving as not created", "resolved_not_created", ("unknown",), "not_created", "not_created"
)
SUPERSEDE: Final = Transition("sending again", "sent_again", ("unknown",), "unknown", "sent_again")
UNRESOLVE: Final = Transition(
    "undoing the resolution",
    "resolution_undone",
    ("confirmed", "not_created"),
    "unknown",
    undoes=("created", "not_created"),
)
REOPEN: Final = Transition("reopening", "reopened", ("unknown",), "unknown", undoes=("sent_again",))


def new_action_id(at: datetime) -> str:
    """`act_` and 26 characters: 48 bits of milliseconds, then 80 random ones."""
    from secrets import randbits  # for writes only

    number = to_us(at) // 1000 << 80 | randbits(80)
    return PREFIX + "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def enter(
    connection: sqlite3.Connection, entry: Action, owner: Owner, supersedes: str | None, *, again: bool
) -> Action:
    """Enter a prepared action, in place of the unknown one that it supersedes, if any; raises as `Ledger.prepare`."""
    at, author = entry.created_at, entry.author
    if supersedes is not None:
        apply(connection, at, author, supersedes, SUPERSEDE, superseded_by=entry.action_id)
    check(connection, entry.kind, entry.subject, entry.key, again=again)
    execute(
        connection,
        "INSERT INTO actions (action_id, kind, subject, key, path, body_json, actor, state, created_us,"
        " base_url, user, host, surface, owner_json, owned_us)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'prepared', ?, ?, ?, ?, ?, ?, ?)",
        *(entry.action_id, entry.kind, entry.subject, entry.key, entry.path, entry.body_json, entry.actor, at),
        *(entry.base_url, *astuple(author), astuple(owner), at),
    )
    _record(connection, at, author, entry.action_id, "prepared", entry.base_url)
    return _existing(connection, entry.action_id)


def check(connection: sqlite3.Connection, kind: ActionKind, subject: str, key: str | None, *, again: bool) -> None:
    """Check that such an action may be entered; raises as `Ledger.prepare`. Without a `key` it gets its own."""
    unused, still_open = (", ".join("?" * len(states)) for states in (UNUSED_STATES, OPEN_STATES))
    query = f"WHERE key = ? AND state NOT IN ({unused})"
    for taken in select(connection, query, key, *UNUSED_STATES):
        raise KeyTakenError(taken, f"already has the key {taken.key!r}; it is {taken.state}.")
    query = f"WHERE kind = ? AND subject = ? AND subject <> '' AND resolution IS NULL AND state IN ({still_open})"
    for blocking in select(connection, query, kind, subject, *OPEN_STATES):
        reason = f"({kind} {blocking.subject}) is {blocking.state}: its outcome comes first."
        raise SubjectBlockedError(blocking, reason)
    if not again and subject and kind == "organization.create":
        query = "WHERE kind = ? AND subject = ? AND state = 'confirmed' ORDER BY seq DESC LIMIT 1"
        for done in select(connection, query, kind, subject):
            raise AlreadyDoneError(done, f"({kind} {done.subject}) is confirmed: it was done before.")


def adopt(connection: sqlite3.Connection, at: datetime, author: Author) -> tuple[Action, ...]:
    """Settle every action whose process has ended; return them, oldest first."""
    if not CLAIMS.list_abandoned(connection, at):
        return ()
    with immediate(connection):
        settled = []
        for action_id in map(str, CLAIMS.list_abandoned(connection, at)):
            if _existing(connection, action_id).state == "prepared":
                transition = NOT_SENT
                reason = "The process that was about to send it ended before it sent anything."
            else:
                transition = UNKNOWN
                reason = "The process that was sending it ended before it heard the answer."
            settled.append(apply(connection, at, author, action_id, transition, ActionFailure(CRASHED, reason)))
        return tuple(settled)


def apply(
    connection: sqlite3.Connection,
    at: datetime,
    author: Author,
    action_id: str,
    transition: Transition,
    error: ActionFailure | None = None,
    result_id: str | None = None,
    response_json: str | None = None,
    superseded_by: str | None = None,
) -> Action:
    """The action after the transition; it keeps its error, result or response if none is given.

    Needs a transaction. Raises as `Ledger.sending` and `Ledger.unresolve`.
    """
    action = _existing(connection, action_id)
    if action.state not in transition.sources or action.resolution not in transition.undoes:
        raise WrongStateError(action, transition.name)
    detail = result_id or superseded_by or (error.kind if error else None)
    if transition is REOPEN:
        detail = action.superseded_by
    if transition is UNRESOLVE:
        detail = action.resolution
        key = action.key if action.state in UNUSED_STATES else None
        check(connection, action.kind, action.subject, key, again=True)
    values: dict[str, Value] = {
        "action_id": action_id,
        "state": transition.target,
        "undoes": transition is UNRESOLVE,
        "at": at,
        "resolution": transition.resolution,
        "kind": error.kind if error else None,
        "message": error.message if error else None,
        "http_status": error.http_status if error else None,
        "error_code": error.error_code if error else None,
        "response_json": response_json,
        "result_id": result_id,
        "superseded_by": superseded_by,
    }
    connection.execute(_APPLY, {name: bound(value) for name, value in values.items()})
    _record(connection, at, author, action_id, transition.record, detail)
    if transition.target in UNUSED_STATES:
        # Sending it again had no effect, so the outcome of the first attempt matters again.
        for old in select(connection, "WHERE superseded_by = ? AND resolution = 'sent_again'", action_id):
            apply(connection, at, author, old.action_id, REOPEN)
    return _existing(connection, action_id)


def _existing(connection: sqlite3.Connection, action_id: str) -> Action:
    for action in select(connection, "WHERE action_id = ?", action_id):
        return action
    raise NoSuchActionError(action_id)


def _record(
    connection: sqlite3.Connection, at: datetime, author: Author, action_id: str, transition: str, detail: str | None
) -> None:
    sql = "INSERT INTO audit (at_us, action_id, transition, detail, user, host, surface) VALUES (?, ?, ?, ?, ?, ?, ?)"
    execute(connection, sql, at, action_id, transition, detail, *astuple(author))
