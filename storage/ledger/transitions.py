"""The legal transitions of an action, as a table; nothing else changes its state, not even after a crash."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.ledger import audit
from storage.ledger.entries import Entry, existing, prepare, refuse_blocked, refuse_taken_key
from storage.ledger.errors import WrongStateError
from storage.ledger.owner import Owner, is_dead
from storage.ledger.queries import select
from storage.records import UNUSED_STATES, Action, ActionError, ActionState, Author, Resolution
from storage.values import sqlite_text, sqlite_text_or_none, to_us

HOPELESS_AFTER: Final = timedelta(hours=1)
"""After this an action counts as abandoned even if its process cannot be seen: requests take seconds at most."""
CRASHED: Final = "crashed"


@dataclass(frozen=True, slots=True)
class Transition:
    """One way from state to state."""

    name: str
    """For messages: "confirming is not possible from there"."""
    record: str
    """Its name in the audit."""
    sources: frozenset[ActionState]
    target: ActionState
    resolution: Resolution | None = None
    """The user's resolution that it records. None: the program makes it."""
    undoes: frozenset[Resolution | None] = frozenset({None})
    """The resolutions that an action may have before it; None stands for no resolution."""


@dataclass(frozen=True, slots=True)
class TransitionOutcome:
    """What a transition records besides the state; None keeps the earlier value."""

    error: ActionError | None = None
    result_id: str | None = None
    response_json: str | None = None
    superseded_by: str | None = None

    @property
    def detail(self) -> str | None:
        """The detail for the audit."""
        return self.result_id or self.superseded_by or (self.error.kind if self.error else None)


NOTHING: Final = TransitionOutcome()

_PREPARED: Final[frozenset[ActionState]] = frozenset({"prepared"})
_SENDING: Final[frozenset[ActionState]] = frozenset({"sending"})
_UNKNOWN: Final[frozenset[ActionState]] = frozenset({"unknown"})
_RESOLVED: Final[frozenset[ActionState]] = frozenset({"confirmed", "not_created"})

SENDING: Final = Transition("sending", "sending", _PREPARED, "sending")
CONFIRM: Final = Transition("confirming", "confirmed", _SENDING, "confirmed")
REJECT: Final = Transition("rejecting", "rejected", _SENDING, "rejected")
UNKNOWN: Final = Transition("giving up on the outcome", "unknown", _SENDING, "unknown")
NOT_SENT: Final = Transition("marking as not sent", "not_sent", _PREPARED | _SENDING, "not_sent")
RESOLVE_CREATED: Final = Transition("resolving as created", "resolved_created", _UNKNOWN, "confirmed", "created")
RESOLVE_NOT_CREATED: Final = Transition(
    "resolving as not created", "resolved_not_created", _UNKNOWN, "not_created", "not_created"
)
SUPERSEDE: Final = Transition("sending again", "sent_again", _UNKNOWN, "unknown", "sent_again")
UNRESOLVE: Final = Transition(
    "undoing the resolution",
    "resolution_undone",
    _RESOLVED,
    "unknown",
    undoes=frozenset[Resolution | None]({"created", "not_created"}),
)
REOPEN: Final = Transition(
    "reopening", "reopened", _UNKNOWN, "unknown", undoes=frozenset[Resolution | None]({"sent_again"})
)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A transition about to be made: by whom, and when."""

    transition: Transition
    author: Author
    at: datetime
    outcome: TransitionOutcome = NOTHING


def apply(connection: sqlite3.Connection, action_id: str, step: StateChange) -> Action:
    """The action after the transition.

    Raises:
        NoSuchActionError: It is not in the ledger.
        WrongStateError: The transition does not lead out of its state, or a person has resolved it before.
        SubjectBlockedError, KeyTakenError: A resolution cannot be undone, because another action has taken its place.
    """
    with immediate(connection):
        return _apply_within(connection, action_id, step)


def enter(connection: sqlite3.Connection, entry: Entry, owner: Owner, at: datetime, supersedes: str | None) -> Action:
    """Enter an action, and replace the unknown one that it supersedes, if any: both or neither.

    Raises as `Ledger.prepare`.
    """
    with immediate(connection):
        if supersedes is not None:
            outcome = TransitionOutcome(superseded_by=entry.action_id)
            _apply_within(connection, supersedes, StateChange(SUPERSEDE, entry.author, at, outcome))
        return prepare(connection, entry, owner, at)


def _apply_within(connection: sqlite3.Connection, action_id: str, step: StateChange) -> Action:
    action = existing(connection, action_id)
    transition = step.transition
    if action.state not in transition.sources or action.resolution not in transition.undoes:
        raise WrongStateError(action, transition.name)
    if transition is UNRESOLVE:
        if action.state in UNUSED_STATES:
            refuse_taken_key(connection, action.key)
        refuse_blocked(connection, action.kind, action.subject)
    _write(connection, action_id, step)
    detail = action.resolution if transition is UNRESOLVE else step.outcome.detail
    audit.add(connection, action_id, transition.record, detail, step.author, step.at)
    if transition.target in UNUSED_STATES:
        _reopen(connection, action_id, step)
    return existing(connection, action_id)


def _reopen(connection: sqlite3.Connection, successor: str, step: StateChange) -> None:
    """Reopen an unknown outcome after sending it again had no effect."""
    for old in select(connection, "WHERE superseded_by = ? AND resolution = 'sent_again'", (successor,)):
        _write(connection, old.action_id, StateChange(REOPEN, step.author, step.at))
        audit.add(connection, old.action_id, REOPEN.record, successor, step.author, step.at)


def _write(connection: sqlite3.Connection, action_id: str, step: StateChange) -> None:
    transition, outcome = step.transition, step.outcome
    error = outcome.error
    connection.execute(
        """
        UPDATE actions SET
            state = :state,
            sending_us = CASE :state WHEN 'sending' THEN :at WHEN 'not_sent' THEN NULL ELSE sending_us END,
            settled_us = CASE WHEN :settles THEN coalesce(settled_us, :at) END,
            error_kind = coalesce(:error_kind, error_kind),
            error_message = coalesce(:error_message, error_message),
            error_status = coalesce(:error_status, error_status),
            error_code = coalesce(:error_code, error_code),
            response_json = coalesce(:response_json, response_json),
            result_id = CASE WHEN :undoes THEN NULL ELSE coalesce(:result_id, result_id) END,
            resolution = :resolution,
            superseded_by = :superseded_by
        WHERE action_id = :action_id
        """,
        {
            "action_id": action_id,
            "state": transition.target,
            "settles": transition.target != "sending",
            "undoes": transition is UNRESOLVE,
            "at": to_us(step.at),
            "resolution": transition.resolution,
            "error_kind": None if error is None else sqlite_text(error.kind),
            "error_message": None if error is None else sqlite_text(error.message),
            "error_status": None if error is None else error.http_status,
            "error_code": sqlite_text_or_none(None if error is None else error.error_code),
            "response_json": sqlite_text_or_none(outcome.response_json),
            "result_id": sqlite_text_or_none(outcome.result_id),
            "superseded_by": sqlite_text_or_none(outcome.superseded_by),
        },
    )


_ENDED: Final = {
    "prepared": (NOT_SENT, "The process that was about to send it ended before it sent anything."),
    "sending": (UNKNOWN, "The process that was sending it ended before it heard the answer."),
}


def adopt(connection: sqlite3.Connection, author: Author, at: datetime) -> tuple[Action, ...]:
    """Settle every action whose owner is dead; return them, oldest first."""
    if not _orphans(connection, at):
        return ()
    with immediate(connection):
        return tuple(
            _apply_within(connection, action_id, _ended(state, author, at))
            for action_id, state in _orphans(connection, at)
        )


def _ended(state: str, author: Author, at: datetime) -> StateChange:
    transition, message = _ENDED[state]
    return StateChange(transition, author, at, TransitionOutcome(ActionError(CRASHED, message)))


def _orphans(connection: sqlite3.Connection, at: datetime) -> list[tuple[str, str]]:
    found = connection.execute(
        "SELECT action_id, state, coalesce(sending_us, created_us), owner_pid, owner_started, owner_boot,"
        " owner_namespace FROM actions WHERE state IN ('prepared', 'sending') ORDER BY seq"
    )
    return [
        (action_id, state)
        for action_id, state, begun_us, *owner in found.fetchall()
        if _is_orphan(Owner(*owner), begun_us, to_us(at))
    ]


def _is_orphan(owner: Owner, begun_us: int, now_us: int) -> bool:
    dead = is_dead(owner)
    if dead is None:
        return now_us - begun_us > HOPELESS_AFTER // timedelta(microseconds=1)
    return dead
