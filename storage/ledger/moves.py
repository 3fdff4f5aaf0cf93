"""The legal moves of an action, as a table; nothing else changes its state."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from storage.database import immediate
from storage.ledger.entries import existing
from storage.ledger.errors import WrongStateError
from storage.records import Action, ActionError, ActionState, Resolution
from storage.storable import storable
from storage.times import to_us


@dataclass(frozen=True, slots=True)
class Move:
    """One way from state to state."""

    name: str
    sources: frozenset[ActionState]
    target: ActionState
    resolution: Resolution | None = None
    """The person's word that the move records. None: the program makes it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a move records beside the state; None leaves as it is what was recorded before."""

    error: ActionError | None = None
    result_id: str | None = None
    response_json: str | None = None
    superseded_by: str | None = None


NOTHING: Final = Outcome()

_PREPARED: Final[frozenset[ActionState]] = frozenset({"prepared"})
_SENDING: Final[frozenset[ActionState]] = frozenset({"sending"})
_UNKNOWN: Final[frozenset[ActionState]] = frozenset({"unknown"})

SENDING: Final = Move("sending", _PREPARED, "sending")
CONFIRM: Final = Move("confirming", _SENDING, "confirmed")
REJECT: Final = Move("rejecting", _SENDING, "rejected")
UNKNOWN: Final = Move("giving up on the outcome", _SENDING, "unknown")
NOT_SENT: Final = Move("marking as not sent", _PREPARED | _SENDING, "not_sent")
RESOLVE_CREATED: Final = Move("resolving as created", _UNKNOWN, "confirmed", "created")
RESOLVE_NOT_CREATED: Final = Move("resolving as not created", _UNKNOWN, "not_created", "not_created")
SUPERSEDE: Final = Move("sending again", _UNKNOWN, "unknown", "sent_again")


def make(connection: sqlite3.Connection, action_id: str, move: Move, outcome: Outcome, at: datetime) -> Action:
    """The action after the move.

    Raises:
        NoSuchActionError: It is not in the ledger.
        WrongStateError: The move does not lead out of its state, or a person has spoken before.
    """
    with immediate(connection):
        return make_within(connection, action_id, move, outcome, at)


def make_within(connection: sqlite3.Connection, action_id: str, move: Move, outcome: Outcome, at: datetime) -> Action:
    """As `make`, inside a transaction that the caller began."""
    action = existing(connection, action_id)
    if action.state not in move.sources or action.resolution is not None:
        raise WrongStateError(action, move.name)
    _write(connection, action_id, move, outcome, to_us(at))
    return existing(connection, action_id)


def _write(connection: sqlite3.Connection, action_id: str, move: Move, outcome: Outcome, at_us: int) -> None:
    error = outcome.error
    settles = move.target != "sending"
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
            "state": move.target,
            "settles": settles,
            "at": at_us,
            "resolution": move.resolution,
            "error_kind": None if error is None else storable(error.kind),
            "error_message": None if error is None else storable(error.message),
            "error_status": None if error is None else error.http_status,
            "error_code": _storable_or_none(None if error is None else error.error_code),
            "response_json": _storable_or_none(outcome.response_json),
            "result_id": _storable_or_none(outcome.result_id),
            "superseded_by": _storable_or_none(outcome.superseded_by),
        },
    )


def _storable_or_none(text: str | None) -> str | None:
    return None if text is None else storable(text)
