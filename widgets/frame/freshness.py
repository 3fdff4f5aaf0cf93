"""How old the shown facts are, which depends on the link to the service, not on the health of its code hosts."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app.times import age, ago, clock_time, roughly_ago
from storage.records import LinkState
from widgets.badges import Badge

if TYPE_CHECKING:
    from storage.records.service_traits import Wait, WaitReason

LATE_AFTER_POLLS: Final = 4
LATE_FLOOR_S: Final = 45.0
"""Facts younger than this are never stale, however short the polling period."""
DUE_AFTER_POLLS: Final = 2
DUE_GRACE_S: Final = 5.0
"""How long a response may take before it is overdue."""

TROUBLES: Final[Mapping[str, str]] = {
    "unreachable": "service unreachable",
    "timed_out": "service does not answer",
    "unusable_answer": "unusable answer",
    "not_authorized": "token refused",
    "forbidden": "not permitted",
    "rate_limited": "rate limited",
    "not_found": "address not found",
    "rejected": "request rejected",
    "server_failed": "service fails",
    "token": "no token",
}
"""Each kind of error in a few words, for the header."""
WAITS: Final["Mapping[WaitReason, str]"] = {
    "rate_limit": "rate limit",
    "own_pace": "rate limit",
    "service_down": "service fails",
}
REFUSED: Final = frozenset({"not_authorized", "forbidden", "token"})
"""Errors of the token, not of the link."""


class PollTiming(Struct, frozen=True):
    """When polling began and how often it happens, which decides what counts as live."""

    opened_at: datetime
    """When this console started polling."""
    period_s: float
    """Seconds between polls."""

    @property
    def due_after_s(self) -> float:
        """The age from which a response is overdue."""
        return max(DUE_AFTER_POLLS * self.period_s, self.period_s + DUE_GRACE_S)

    @property
    def late_after_s(self) -> float:
        """The age from which facts are stale, even if no poll failed."""
        return max(LATE_FLOOR_S, LATE_AFTER_POLLS * self.period_s)


def freshness(link: LinkState | None, timing: PollTiming, now: datetime, wait: "Wait | None" = None) -> Badge:
    """The state of one subject's facts: connecting, live, overdue, or stale with its age and reason.

    A wait is reported, with its end, once the facts are older than usual.
    """
    if (trouble := _waiting(link, timing, now, wait) or _failing(link, now)) is not None:
        return trouble
    if link is None or link.last_ok_at is None:
        return Badge("◌", "connecting…", "wait")
    since = age(link.last_ok_at, now)
    age_s = (now - link.last_ok_at).total_seconds()
    is_young = age_s <= timing.late_after_s
    if link.last_ok_at < timing.opened_at and not is_young:
        return Badge("◌", f"connecting… · from {ago(link.last_ok_at, now)}", "wait")
    if not is_young:
        return Badge("◌", f"stale {since}", "warn")
    if age_s >= timing.due_after_s:
        return Badge("◌", f"{since} old, waiting for an answer", "wait")
    return Badge("●", f"live · {roughly_ago(link.last_ok_at, now)}", "good")


def _waiting(link: LinkState | None, timing: PollTiming, now: datetime, wait: "Wait | None") -> Badge | None:
    held = link or LinkState("runs")
    is_young = held.last_ok_at is not None and (now - held.last_ok_at).total_seconds() < timing.due_after_s
    if wait is None or wait.until <= now or held.error_kind in REFUSED or (is_young and not held.is_failing):
        return None
    why = trouble_word(held.error_kind) if wait.reason == "service_down" and held.error_kind else WAITS[wait.reason]
    stale = "" if held.last_ok_at is None else f"stale {age(held.last_ok_at, now)} · "
    return Badge("◌", f"{stale}waiting until {clock_time(wait.until, now)}: {why}", "warn")


def _failing(link: LinkState | None, now: datetime) -> Badge | None:
    if link is None or link.failing_since is None:
        return None
    refused = link.error_kind in REFUSED
    trouble = trouble_word(link.error_kind)
    word = trouble if link.last_ok_at is None else f"stale {age(link.last_ok_at, now)}: {trouble}"
    return Badge("✗" if refused else "◌", word, "bad" if refused else "warn")


def trouble_word(kind: str | None) -> str:
    """An error's kind in a few words."""
    return TROUBLES.get(kind or "", "not answering")
