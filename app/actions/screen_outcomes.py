"""An action's outcome in words: what happened, what still holds, and what to do next."""

from datetime import datetime
from typing import Final

from app.engine.text import safe_text
from app.engine.times import ago, stamp
from storage.records import INVITATION_LIFETIME, WRITE_KINDS, Action, ActionFailure
from storage.records.error_kinds import error_kind
from widgets.forms.pages import OutcomeText, reason
from widgets.kit.badges import action_badge

_MAY_NOT_CREATE: Final = (
    "The token needs the scope organizations:create or admin, the organization the entitlement CreateOrganizations, "
    "and it must be active."
)


def confirmed(action: Action) -> OutcomeText:
    """Describe an action that took effect."""
    text = WRITE_KINDS[action.kind]
    facts = [(text.made, safe_text(action.result_id or "-")), ("action", safe_text(action.action_id))]
    if action.kind == "organization.create" and action.settled_at is not None:
        until = stamp(action.settled_at + INVITATION_LIFETIME)
        facts.insert(1, ("invited", safe_text(f"{action.subject}, until {until}")))
    return OutcomeText("done", safe_text(text.done), tuple(facts), (safe_text(text.after),))


def unknown(action: Action, command_line: str) -> OutcomeText:
    """Describe an action that may have taken effect."""
    facts = [("action", safe_text(action.action_id))]
    if action.error is not None:
        facts.insert(0, ("reason", safe_text(reason(action.error))))
    meaning = (
        "It was sent, but no usable answer came back: it may have taken effect, or not. "
        "It is never sent again automatically."
    )
    resolve = f"Press v to resolve it, or run: {command_line} actions resolve {action.action_id}"
    return OutcomeText(
        "unknown",
        safe_text("The outcome is unknown"),
        tuple(facts),
        (safe_text(meaning), safe_text(WRITE_KINDS[action.kind].check), safe_text(resolve)),
    )


def blocked(existing: Action, now: datetime, command_line: str) -> OutcomeText:
    """Describe the earlier action that blocks this one."""
    facts = [
        ("for", safe_text(existing.subject)),
        ("earlier", safe_text(f"{action_badge(existing.state).word}, {ago(existing.created_at, now)}")),
        ("by", safe_text(existing.actor)),
        ("action", safe_text(existing.action_id)),
    ]
    if existing.error is not None:
        facts.insert(2, ("reason", safe_text(reason(existing.error))))
    if existing.state == "unknown":
        meaning = (
            WRITE_KINDS[existing.kind].check,
            f"Press v to resolve it, or run: {command_line} actions resolve {existing.action_id}",
        )
    else:
        meaning = ("It is being sent.", "Wait until it is done, then try again.")
    return OutcomeText(
        "blocked",
        safe_text("Not sent: an earlier attempt is still open"),
        tuple(facts),
        tuple(safe_text(line) for line in meaning),
    )


def broken(message: str, command_line: str) -> OutcomeText:
    """Describe a write that the ledger failed to record."""
    meaning = (
        f"Check the ledger before you send this again: {command_line} actions list. A write listed there as sending "
        "or unknown may have taken effect; one that is not listed was not sent."
    )
    return OutcomeText(
        "failed", safe_text("The ledger could not be written"), (), (safe_text(message), safe_text(meaning))
    )


def not_done(action: Action) -> str:
    """Describe why a rejected or unsent action had no effect, and what to change."""
    error = action.error or ActionFailure("unknown", "The reason is unknown.")
    if action.state == "not_sent":
        return f"Not sent: {error.message} Nothing left this machine; you can send it again."
    cure = error_kind(error.kind).write_fix
    if error.kind == "forbidden" and action.kind == "organization.create":
        cure = _MAY_NOT_CREATE
    return f"Rejected: {reason(error)} Nothing was done. {cure}"
