"""Writes as commands print them: JSON with the service's own fields as received."""

import json
from urllib.parse import unquote

from app.cli.output import facts
from app.engine.times import rfc3339
from app.runs.document import as_received
from storage.records import CANCELLED, WRITE_KINDS, Action, ActionKind


def unsent_document(kind: ActionKind) -> dict[str, object]:
    """The document of a write that was refused before there was an action: the same fields, all null."""
    unsent: dict[str, object] = {"action_id": None, "kind": kind, "state": "not_sent", "base_url": None}
    return unsent | {WRITE_KINDS[kind].made: None, "warnings": []}


def write_document(action: Action) -> dict[str, object]:
    """The document of a write: its action and its result (null until known)."""
    made = as_received(action.response_json) or None
    if made is None and action.resolution == "created" and action.result_id is not None:
        made = {WRITE_KINDS[action.kind].fields[0]: action.result_id}  # A user named it: only its id is known.
    if made is not None and (action.kind, action.state) == ("run.cancel", "confirmed"):
        made["outcome"] = CANCELLED
    document = facts(action, "action_id kind state base_url") | {WRITE_KINDS[action.kind].made: made}
    return document if action.error is None else document | {"error": error_document(action)}


def error_document(action: Action) -> dict[str, object] | None:
    """The action's error as JSON; None: it is confirmed, or still open."""
    return None if action.error is None else facts(action.error, "kind message http_status error_code")


def action_document(action: Action) -> dict[str, object]:
    """A whole entry of the ledger."""
    names = "action_id kind state key actor base_url path created_at sending_at settled_at result_id resolution"
    return {
        **facts(action, f"{names} superseded_by"),
        **facts(action.author, "user host surface"),
        "resolved_at": rfc3339(action.resolved_at),
        "resolved_by": action.resolved_by.name or None,
        "subject": action.subject or None,
        "body": json.loads(action.body_json),
        "response": as_received(action.response_json) or None,
        "error": error_document(action),
    }


def subject(action: Action) -> str:
    """The subject of the write, in a few words."""
    if action.subject:
        return action.subject
    if action.kind in {"agent.start", "run.cancel", "run.say", "invitation.resend"}:
        return unquote(action.path.split("/")[-2])
    body = as_received(action.body_json)
    return str(body.get("project_path") or body.get("project_id") or body.get("instructions") or action.path)


def state_text(action: Action) -> str:
    """An action's state in words, and whether a user resolved it."""
    by_hand = {"sent_again": " (sent again)", None: ""}.get(action.resolution, " (by hand)")
    return action.state.replace("_", " ") + by_hand
