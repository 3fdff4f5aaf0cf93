"""Writes as commands print them: JSON with the service's own fields as received."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from app.cli.exits import ErrorDetail
from app.run_document import as_received
from app.times import rfc3339
from storage.records import INVITATION_LIFETIME, Action, ActionKind

RESULT_KEYS: Final[Mapping[ActionKind, str]] = {
    "run.start": "run",
    "run.continue": "run",
    "agent.start": "execution",
    "organization.create": "organization",
    "gitlab.onboard": "project",
    "run.cancel": "run",
}
"""The key of a write's document for its result."""
ID_KEYS: Final[Mapping[ActionKind, str]] = {
    "run.start": "run_id",
    "run.continue": "run_id",
    "agent.start": "execution_id",
    "organization.create": "organization_id",
    "gitlab.onboard": "project_path",
    "run.cancel": "run_id",
}
"""The field of a result that holds its id."""


def unsent_document(kind: ActionKind) -> dict[str, object]:
    """The document of a write that was refused before there was an action: the same fields, all null."""
    return {
        "action_id": None,
        "kind": kind,
        "state": "not_sent",
        "base_url": None,
        RESULT_KEYS[kind]: None,
        "warnings": [],
    }


def write_document(action: Action) -> dict[str, object]:
    """The document of a write: its action and its result (null until known)."""
    made = as_received(action.response_json) or _linked(action)
    document: dict[str, object] = {
        "action_id": action.action_id,
        "kind": action.kind,
        "state": action.state,
        "base_url": action.base_url,
        RESULT_KEYS[action.kind]: made,
    }
    if action.error is not None:
        document["error"] = error_document(action)
    return document


def _linked(action: Action) -> dict[str, object] | None:
    """The result that a person named when they resolved the action: only its id is known."""
    if action.resolution != "created" or action.result_id is None:
        return None
    return {ID_KEYS[action.kind]: action.result_id}


def error_document(action: Action) -> dict[str, ErrorDetail] | None:
    """The action's error as JSON; None: it is confirmed, or still open."""
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
    """A whole entry of the ledger."""
    return {
        "action_id": action.action_id,
        "kind": action.kind,
        "state": action.state,
        "subject": action.subject or None,
        "key": action.key,
        "actor": action.actor,
        "user": action.author.user,
        "host": action.author.host,
        "surface": action.author.surface,
        "base_url": action.base_url,
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


def state_text(action: Action) -> str:
    """An action's state, with a person's resolution."""
    return action.state + (f" ({action.resolution.replace('_', ' ')})" if action.resolution else "")


def invitation_ends_at(action: Action) -> datetime | None:
    """When the administrator's invitation expires (spec 3); None if no organization was created."""
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
