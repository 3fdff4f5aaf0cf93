"""An action's outcome in words: what happened, what still holds, and what to do next."""

from datetime import datetime
from typing import Final

from msgspec import Struct

from app.text import safe_text
from app.times import ago, stamp
from storage.records import INVITATION_LIFETIME, Action, ActionFailure, ActionKind
from widgets.badges import action_badge
from widgets.forms.pages import OutcomeText, reason


class KindText(Struct, frozen=True):
    """What is said about the outcomes of one kind of write."""

    done: str
    result: str
    """The name of what it makes."""
    after: str
    """What happens next."""
    look: str
    """Where to look when its outcome is unknown."""


_LOOK_AMONG_RUNS: Final = "Look among the runs whether it appeared, then resolve this."
KINDS: Final[dict[ActionKind, KindText]] = {
    "run.start": KindText(
        "The run was started",
        "run",
        "It is among the runs already; its status follows by itself.",
        _LOOK_AMONG_RUNS,
    ),
    "run.continue": KindText(
        "The run goes on",
        "run",
        "Its status follows by itself; what you wrote stands in its conversation.",
        "Look at the run whether it went on, then resolve this. Until then it cannot be continued again.",
    ),
    "agent.start": KindText(
        "The agent's execution was accepted",
        "execution",
        "No endpoint reads an execution back; if the service lists it as a run, it shows up among them.",
        _LOOK_AMONG_RUNS,
    ),
    "organization.create": KindText(
        "The organization was created",
        "organization",
        "What becomes of its invitation is shown in Organizations, where the service tells it.",
        "Find out whether the organization exists, or whether the invitation arrived, then resolve this. Until then "
        "no other organization can be created for this address. Sent again, it could exist twice.",
    ),
    "gitlab.onboard": KindText(
        "The service took the project",
        "project",
        "Health shows GitLab once the service is connected to it.",
        "Onboarding twice does no harm: resolve this as not created and send it again.",
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
        "Its agent ends within a second or two, and nothing of it is pushed.",
        "Cancelling twice does no harm: send it again, or look at the run whether it has ended.",
    ),
}
_CURES: Final[dict[str, str]] = {
    "not_authorized": "The token is missing, unknown or has expired: give this profile a new one.",
    "rate_limited": "The organization's rate limit is spent: wait, then send again.",
    "not_found": "Check the names.",
    "forbidden": "The token needs Administrator scope.",
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
        "It left this machine and no usable answer came back: it may have taken effect, or not. "
        "It is in the ledger, and the program never sends it again by itself."
    )
    resolve = f"v resolves it here; elsewhere: {command_line} actions resolve {action.action_id}"
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
            f"v resolves it here; elsewhere: {command_line} actions resolve {existing.action_id}",
        )
    else:
        meaning = ("It is on its way.", "Wait for it, then try again.")
    return OutcomeText(
        "blocked",
        safe_text("Not sent: an earlier attempt is still open"),
        tuple(facts),
        tuple(safe_text(line) for line in meaning),
    )


def broken(message: str, command_line: str) -> OutcomeText:
    """Describe a write that the ledger failed to record."""
    meaning = (
        f"Look at the ledger before you send this again: {command_line} actions list. A write listed there as sending "
        "or unknown may have taken effect; one that is not listed was not sent."
    )
    return OutcomeText(
        "failed", safe_text("The ledger could not be written"), (), (safe_text(message), safe_text(meaning))
    )


def not_done(action: Action) -> str:
    """Describe why a rejected or unsent action had no effect, and what to change."""
    error = action.error or ActionFailure("unknown", "No reason is known.")
    if action.state == "not_sent":
        return f"Not sent: {error.message} Nothing left this machine; send it again when you like."
    cure = _CURES.get(error.kind, "Change it and send it again.")
    if error.kind == "forbidden" and action.kind == "organization.create":
        cure = _MAY_NOT_CREATE
    return f"Rejected: {reason(error)} Nothing was done. {cure}"
