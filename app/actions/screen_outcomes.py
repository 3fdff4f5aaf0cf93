"""An action's outcome in words: what happened, what still holds, and what to do next."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from app.engine.text import safe_text
from app.engine.times import ago, stamp
from storage.records import INVITATION_LIFETIME, Action, ActionFailure, ActionKind
from widgets.forms.pages import OutcomeText, reason
from widgets.kit.badges import action_badge


class KindText(Struct, frozen=True):
    """What is said about the outcomes of one kind of write."""

    done: str
    result: str
    """The name of what it makes."""
    after: str
    """What happens next."""
    look: str
    """Where to look when its outcome is unknown."""


_LOOK_AMONG_RUNS: Final = "Check whether it is in Runs, then resolve this."
KINDS: Final[dict[ActionKind, KindText]] = {
    "run.start": KindText(
        "The run was started",
        "run",
        "It is in Runs, where its status updates.",
        _LOOK_AMONG_RUNS,
    ),
    "run.continue": KindText(
        "The run was continued",
        "run",
        "Its status updates in Runs; your message is in its conversation.",
        "Check whether the run was continued, then resolve this. Until then it cannot be continued again.",
    ),
    "agent.start": KindText(
        "The service accepted the agent's start",
        "execution",
        "The API does not show executions. If the service lists it as a run, it appears in Runs.",
        _LOOK_AMONG_RUNS,
    ),
    "organization.create": KindText(
        "The organization was created",
        "organization",
        "What becomes of its invitation is shown in Organizations, where the service tells it.",
        "Check whether the organization exists, or whether the invitation arrived, then resolve this. Until then its "
        "address is blocked: a second attempt could create a second organization.",
    ),
    "gitlab.onboard": KindText(
        "The project was onboarded",
        "project",
        "Health shows GitLab once the service has connected to it.",
        "Onboarding twice is harmless: resolve this as not created, then send it again.",
    ),
    "invitation.resend": KindText(
        "The invitation was sent again",
        "invitation",
        "The code of the mail before it no longer works.",
        "Sending it once more does no harm: the newest mail is the one that counts.",
    ),
    "run.cancel": KindText(
        "The run was cancelled",
        "run",
        "Its agent stops within seconds; nothing of this turn is pushed.",
        "Cancelling twice is harmless: send it again, or check whether the run has ended.",
    ),
}
_CURES: Final[dict[str, str]] = {
    "not_authorized": "The token is missing, unknown or has expired: give this profile a new one.",
    "rate_limited": "The organization's rate limit is spent: wait, then send again.",
    "not_found": "Check the names.",
    "forbidden": "The token needs scope admin.",
}
_MAY_NOT_CREATE: Final = (
    "The token needs the scope organizations:create or admin, the organization the entitlement CreateOrganizations, "
    "and it must be active."
)


def confirmed(action: Action) -> OutcomeText:
    """Describe an action that took effect."""
    text = KINDS[action.kind]
    facts = [(text.result, safe_text(action.result_id or "-")), ("action", safe_text(action.action_id))]
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
        (safe_text(meaning), safe_text(KINDS[action.kind].look), safe_text(resolve)),
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
            KINDS[existing.kind].look,
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
    cure = _CURES.get(error.kind, "Change it and send it again.")
    if error.kind == "forbidden" and action.kind == "organization.create":
        cure = _MAY_NOT_CREATE
    return f"Rejected: {reason(error)} Nothing was done. {cure}"
