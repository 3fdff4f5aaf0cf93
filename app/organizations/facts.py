"""Invitations in words, with their states if the service reports them (docs/dev/api.md)."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from app.engine.times import age, ago, stamp
from storage.records import Action, Tone
from storage.records.organization import Invitation

LIFETIME: Final = timedelta(days=30)
"""How long the administrator's invitation holds (spec 3)."""
EXPIRES_SOON: Final = timedelta(days=3)
"""An invitation that expires within this time is highlighted."""
UNKNOWN: Final = "unknown"
_TONES: Final[dict[str, Tone]] = {"accepted": "good", "waiting": "warn", "refused": "bad", "expired": "warn"}
CLOSED: Final = frozenset({"accepted", "withdrawn"})
"""States after which an invitation cannot be sent again."""


def invited_until(action: Action) -> datetime | None:
    """When the administrator's invitation expires by the spec (3), or None if no organization was created."""
    if action.kind != "organization.create" or action.state != "confirmed":
        return None
    return (action.sending_at or action.created_at) + LIFETIME


def newest_invitation(reported: Iterable[Invitation], organization_id: str | None, email: str) -> Invitation | None:
    """The newest invitation of an address to an organization; None if the service reports none."""
    identity = organization_id, email.casefold()
    return next((row for row in reported if (row.organization_id, row.email.casefold()) == identity), None)


def short_state(invitation: Invitation | None, now: datetime) -> tuple[str, Tone]:
    """An invitation's state in at most 17 cells; None means unknown."""
    if invitation is None:
        return UNKNOWN, "quiet"
    tone = _TONES.get(invitation.state, "plain")
    if invitation.state == "accepted" and invitation.accepted_at is not None:
        return f"accepted {ago(invitation.accepted_at, now)}", tone
    if invitation.state == "waiting":
        return "not sent yet", tone
    if invitation.state != "sent" or invitation.expires_at is None:
        return invitation.state, tone
    place = "outbox" if invitation.mail == "outbox" else "sent"
    left = age(invitation.expires_at, now).removeprefix("in ")
    return f"{place}, {left} left", "warn" if invitation.expires_at - now < EXPIRES_SOON else tone


def full_state(invitation: Invitation | None, until: datetime, now: datetime) -> str:
    """An invitation's state as a sentence with the mail's destination; `until` replaces an unreported expiry."""
    if invitation is None:
        return f"unknown: this service does not report it; unless accepted, it expires {stamp(until)}"
    words, _ = short_state(invitation, now)
    sent_at = "" if invitation.sent_at is None else f" {stamp(invitation.sent_at)}"
    ends = "" if invitation.expires_at is None else f", until {stamp(invitation.expires_at)}"
    match invitation.state:
        case "sent" if invitation.mail == "outbox":
            return f"written into the service's outbox folder{sent_at}; pass it on from there{ends}"
        case "sent":
            return f"handed to the mail server{sent_at}; whether it arrived, the service cannot tell{ends}"
        case "waiting" | "refused":
            again = "; it is tried again" if invitation.state == "waiting" else ""
            return f"not sent: {invitation.failure or 'no attempt yet'}{again}"
        case _:
            if invitation.state == "accepted":
                return words
            return f"{words}{ends.replace('until', 'since')}"
