"""Records as the JSON that `--json` promises: the service's own fields as received, ours beside them."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from app.cli.exits import ErrorDetail
from app.cli.times import rfc3339
from app.run_document import as_received, run_document
from storage.records import INVITATION_LIFETIME, Action, ActionKind

__all__ = [
    "RESULT_KEYS",
    "action_document",
    "as_received",
    "run_document",
    "unsent_document",
    "write_document",
]

RESULT_KEYS: Final[Mapping[ActionKind, str]] = {
    "run.start": "run",
    "run.continue": "run",
    "agent.start": "execution",
    "organization.create": "organization",
    "gitlab.onboard": "project",
}
"""Under which name a write's document has what it made."""
ID_KEYS: Final[Mapping[ActionKind, str]] = {
    "run.start": "run_id",
    "run.continue": "run_id",
    "agent.start": "execution_id",
    "organization.create": "organization_id",
    "gitlab.onboard": "project_path",
}
"""The field of it that is its id."""


def unsent_document(kind: ActionKind) -> dict[str, object]:
    """What a write prints that was refused before there was an action: the same fields, and nothing in them."""
    return {"action_id": None, "kind": kind, "state": "not_sent", RESULT_KEYS[kind]: None}


def write_document(action: Action) -> dict[str, object]:
    """What a write prints: its action, and what it made (null until that is known)."""
    made = as_received(action.response_json) or _linked(action)
    document: dict[str, object] = {
        "action_id": action.action_id,
        "kind": action.kind,
        "state": action.state,
        RESULT_KEYS[action.kind]: made,
    }
    if action.error is not None:
        document["error"] = error_document(action)
    return document


def _linked(action: Action) -> dict[str, object] | None:
    """What a person found that it made: nothing is known of it but its id."""
    if action.resolution != "created" or action.result_id is None:
        return None
    return {ID_KEYS[action.kind]: action.result_id}


def error_document(action: Action) -> dict[str, ErrorDetail] | None:
    """Why the action is not confirmed; None where it is, or nobody knows yet."""
    if action.error is None:
        return None
    error = action.error
    return {
        "kind": error.kind,
        "message": error.message,
        "http_status": error.http_status,
        "error_code": error.error_code,
    }


def action_document(action: Action) -> dict[str, object]:
    """An entry of the ledger, whole."""
    return {
        "action_id": action.action_id,
        "kind": action.kind,
        "state": action.state,
        "subject": action.subject or None,
        "key": action.key,
        "actor": action.actor,
        "path": action.path,
        "body": json.loads(action.body_json),
        "created_at": rfc3339(action.created_at),
        "sending_at": rfc3339(action.sending_at),
        "settled_at": rfc3339(action.settled_at),
        "result_id": action.result_id,
        "response": as_received(action.response_json) or None,
        "error": error_document(action),
        "resolution": action.resolution,
        "superseded_by": action.superseded_by,
    }


def invitation_ends_at(action: Action) -> datetime | None:
    """When the administrator's invitation lapses (spec 3); None where no organization was created."""
    if action.kind != "organization.create" or action.state != "confirmed":
        return None
    sent_at = action.sending_at or action.created_at
    return sent_at + INVITATION_LIFETIME


def organization_document(action: Action) -> dict[str, object]:
    """An attempt to create an organization."""
    body = json.loads(action.body_json)
    return {
        "action_id": action.action_id,
        "email": body.get("email"),
        "offer_code": body.get("offer_code"),
        "state": action.state,
        "organization": as_received(action.response_json) or None,
        "organization_id": action.result_id,
        "created_at": rfc3339(action.created_at),
        "settled_at": rfc3339(action.settled_at),
        "invitation_expires_at": rfc3339(invitation_ends_at(action)),
        "error": error_document(action),
        "resolution": action.resolution,
    }
