"""The outcome of one write, in words."""

from datetime import datetime
from typing import Final

from app.actions.drafts import DraftOutcome
from app.engine.text import SafeText, safe_text
from app.engine.times import ago, stamp
from app.runs.document import when_heard
from storage.records import INVITATION_LIFETIME, WRITE_KINDS, Action, ActionFailure
from storage.records.error_kinds import error_kind
from widgets.forms.dialog import OutcomeText, reason
from widgets.kit.badges import Tone, action_badge

_MAY_NOT_CREATE: Final = (
    "The token needs the scope organizations:create or admin, the organization the entitlement CreateOrganizations, "
    "and it must be active."
)


def about_draft(outcome: DraftOutcome, sent: Action | None, when: str) -> tuple[SafeText, Tone]:
    """Describe where the text comes from, and its outcome if it was sent."""
    if outcome == "open":
        return safe_text(f"Sent {when}; the outcome is unknown: check before you send it again."), "warn"
    if outcome == "done":
        result = f": {sent.result_id}" if sent is not None and sent.result_id else ""
        return safe_text(f"Your request from {when} took effect{result}"), "good"
    return safe_text(f"Your draft from {when}."), "quiet"


def confirmed_outcome(action: Action) -> OutcomeText:
    """Describe an action that took effect."""
    text = WRITE_KINDS[action.kind]
    facts = [(text.made, action.result_id or "-"), ("action", action.action_id)]
    if action.kind == "organization.create" and action.settled_at is not None:
        until = stamp(action.settled_at + INVITATION_LIFETIME)
        facts.insert(1, ("invited", f"{action.subject}, until {until}"))
    return OutcomeText("done", text.done, tuple(facts), (when_heard(action) or text.after,))


def unknown_outcome(action: Action, command_line: str) -> OutcomeText:
    """Describe an action that may have taken effect."""
    facts = [("action", action.action_id)]
    if action.error is not None:
        facts.insert(0, ("reason", reason(action.error)))
    meaning = (
        "It was sent, but no usable answer came back: it may have taken effect, or not. "
        "It is never sent again automatically."
    )
    resolve = f"Press v to resolve it, or run: {command_line} actions resolve {action.action_id}"
    return OutcomeText(
        "unknown", "The outcome is unknown", tuple(facts), (meaning, WRITE_KINDS[action.kind].check, resolve)
    )


def blocked_outcome(existing: Action, now: datetime, command_line: str) -> OutcomeText:
    """Describe the earlier action that blocks this one."""
    facts = [
        ("for", existing.subject),
        ("earlier", f"{action_badge(existing.state).word}, {ago(existing.created_at, now)}"),
        ("by", existing.actor),
        ("action", existing.action_id),
    ]
    if existing.error is not None:
        facts.insert(2, ("reason", reason(existing.error)))
    if existing.state == "unknown":
        meaning = (
            WRITE_KINDS[existing.kind].check,
            f"Press v to resolve it, or run: {command_line} actions resolve {existing.action_id}",
        )
    else:
        meaning = ("It is being sent.", "Wait until it is done, then try again.")
    return OutcomeText("blocked", "Not sent: an earlier attempt is still open", tuple(facts), meaning)


def why_not_done(action: Action) -> str:
    """Describe why a rejected or unsent action had no effect, and what to change."""
    error = action.error or ActionFailure("unknown", "The reason is unknown.")
    if action.state == "not_sent":
        return f"Not sent: {error.message} Nothing left this machine; you can send it again."
    cure = error_kind(error.kind).write_fix
    if error.kind == "forbidden" and action.kind == "organization.create":
        cure = _MAY_NOT_CREATE
    return f"Rejected: {reason(error)} Nothing was done. {cure}"
