"""The legal transitions of an action, as a table; nothing else changes its state, not even after a crash."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.ledger.entries import existing
from storage.ledger.errors import WrongStateError
from storage.ledger.owner import Owner, is_dead
from storage.records import Action, ActionError, ActionState, Resolution
from storage.values import sqlite_text, to_us


@dataclass(frozen=True, slots=True)
class Transition:
    """One way from state to state."""

    name: str
    sources: frozenset[ActionState]
    target: ActionState
    resolution: Resolution | None = None
    """The person's word that the transition records. None: the program makes it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transition records besides the state; None keeps what was recorded before."""

    error: ActionError | None = None
    result_id: str | None = None
    response_json: str | None = None
    superseded_by: str | None = None


NOTHING: Final = Outcome()

_PREPARED: Final[frozenset[ActionState]] = frozenset({"prepared"})
_SENDING: Final[frozenset[ActionState]] = frozenset({"sending"})
_UNKNOWN: Final[frozenset[ActionState]] = frozenset({"unknown"})

SENDING: Final = Transition("sending", _PREPARED, "sending")
CONFIRM: Final = Transition("confirming", _SENDING, "confirmed")
REJECT: Final = Transition("rejecting", _SENDING, "rejected")
UNKNOWN: Final = Transition("giving up on the outcome", _SENDING, "unknown")
NOT_SENT: Final = Transition("marking as not sent", _PREPARED | _SENDING, "not_sent")
RESOLVE_CREATED: Final = Transition("resolving as created", _UNKNOWN, "confirmed", "created")
RESOLVE_NOT_CREATED: Final = Transition("resolving as not created", _UNKNOWN, "not_created", "not_created")
SUPERSEDE: Final = Transition("sending again", _UNKNOWN, "unknown", "sent_again")


def apply(
    connection: sqlite3.Connection, action_id: str, transition: Transition, outcome: Outcome, at: datetime
) -> Action:
    """The action after the transition.

    Raises:
        NoSuchActionError: It is not in the ledger.
        WrongStateError: The transition does not lead out of its state, or a person has resolved it before.
    """
    with immediate(connection):
        return apply_within(connection, action_id, transition, outcome, at)


def apply_within(
    connection: sqlite3.Connection, action_id: str, transition: Transition, outcome: Outcome, at: datetime
) -> Action:
    """As `apply`, inside a transaction that the caller began."""
    action = existing(connection, action_id)
    if action.state not in transition.sources or action.resolution is not None:
        raise WrongStateError(action, transition.name)
    _write(connection, action_id, transition, outcome, to_us(at))
    return existing(connection, action_id)


def _write(
    connection: sqlite3.Connection, action_id: str, transition: Transition, outcome: Outcome, at_us: int
) -> None:
    error = outcome.error
    settles = transition.target != "sending"
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
            result_id = coalesce(:result_id, result_id),
            resolution = :resolution,
            superseded_by = :superseded_by
        WHERE action_id = :action_id
        """,
        {
            "action_id": action_id,
            "state": transition.target,
            "settles": settles,
            "at": at_us,
            "resolution": transition.resolution,
            "error_kind": None if error is None else sqlite_text(error.kind),
            "error_message": None if error is None else sqlite_text(error.message),
            "error_status": None if error is None else error.http_status,
            "error_code": _text_or_none(None if error is None else error.error_code),
            "response_json": _text_or_none(outcome.response_json),
            "result_id": _text_or_none(outcome.result_id),
            "superseded_by": _text_or_none(outcome.superseded_by),
        },
    )


def _text_or_none(text: str | None) -> str | None:
    return None if text is None else sqlite_text(text)


HOPELESS_AFTER: Final = timedelta(hours=1)
"""A request has a deadline of seconds: one this old no longer has a sender, even where it cannot be seen."""

CRASHED: Final = "crashed"

_ENDED: Final = {
    "prepared": (NOT_SENT, "The process that was about to send it ended before it sent anything."),
    "sending": (UNKNOWN, "The process that was sending it ended before it heard the answer."),
}


def adopt(connection: sqlite3.Connection, at: datetime) -> tuple[Action, ...]:
    """Settle every action whose owner is dead; those settled, oldest first."""
    if not _under_way(connection):
        return ()
    with immediate(connection):
        return tuple(
            _settle(connection, action_id, *_ENDED[state], at)
            for action_id, state, owner, begun_us in _under_way(connection)
            if _is_orphan(owner, begun_us, to_us(at))
        )


def _under_way(connection: sqlite3.Connection) -> list[tuple[str, str, Owner, int]]:
    found = connection.execute(
        "SELECT action_id, state, coalesce(sending_us, created_us), owner_pid, owner_started, owner_boot,"
        " owner_namespace FROM actions WHERE state IN ('prepared', 'sending') ORDER BY seq"
    )
    return [(action_id, state, Owner(*owner), begun_us) for action_id, state, begun_us, *owner in found.fetchall()]


def _is_orphan(owner: Owner, begun_us: int, now_us: int) -> bool:
    dead = is_dead(owner)
    if dead is None:
        return now_us - begun_us > HOPELESS_AFTER // timedelta(microseconds=1)
    return dead


def _settle(
    connection: sqlite3.Connection, action_id: str, transition: Transition, message: str, at: datetime
) -> Action:
    return apply_within(connection, action_id, transition, Outcome(error=ActionError(CRASHED, message)), at)
