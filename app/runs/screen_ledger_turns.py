"""Actions of the ledger as the turns of a conversation."""

import json
from typing import TYPE_CHECKING, Final

from app.engine.text import safe_block, safe_text
from widgets.runs.facts import SentMessage

if TYPE_CHECKING:
    from storage.records import Action

TURN_LINES: Final = 60
"""Lines of one instruction shown; the ledger has all of them."""


def turn_of(action: "Action") -> SentMessage:
    """Return an action of the ledger as a turn of a conversation."""
    trouble = safe_text(action.error.message) if action.error is not None else None
    body = json.loads(action.body_json)
    text = body.get("instructions") if isinstance(body, dict) else None
    if isinstance(text, str):
        lines = safe_block(text, lines=TURN_LINES)
    else:
        inputs = body.get("inputs", {}) if isinstance(body, dict) else body
        lines = safe_block(json.dumps(inputs, indent=2, ensure_ascii=False))
    return SentMessage(action.created_at, safe_text(action.actor, limit=60), action.state, lines, trouble)


def instructions_of(action: "Action") -> str:
    """Return the action's instructions; empty if it had none."""
    body = json.loads(action.body_json)
    return str(body.get("instructions") or "") if isinstance(body, dict) else ""
