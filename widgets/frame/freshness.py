"""How old the shown facts are, which depends on the link to the service, not on the health of its code hosts."""

from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app.engine.times import age, ago, roughly_ago, span
from storage.records import LinkState
from storage.records.error_kinds import error_kind
from widgets.kit.badges import Badge

if TYPE_CHECKING:
    from storage.records.activity import Wait

LATE_AFTER_POLLS: Final = 4
LATE_FLOOR_S: Final = 45.0
"""Facts younger than this are never stale, however short the polling period."""
DUE_AFTER_POLLS: Final = 2
DUE_GRACE_S: Final = 5.0
"""How long a response may take before it is overdue."""


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
    """The state of one subject's facts: connecting, live, or their age, with the reason if there is one."""
    is_limited = wait is not None and wait.until > now and wait.reason != "service_down"
    if link is not None and link.is_failing:
        kind = error_kind(link.error_kind)
        refused, word = kind.concerns == "token", kind.word
        if link.last_ok_at is not None and (since := age(link.last_ok_at, now)) != "now":
            word = f"no answer for {since}" if kind.concerns == "link" else f"{since} old: {word}"
        return Badge("✗" if refused else "◌", word, "bad" if refused else "warn")
    if link is None or link.last_ok_at is None:
        return Badge("◌", "rate limit" if is_limited else "connecting…", "wait")
    since = age(link.last_ok_at, now)
    age_s = (now - link.last_ok_at).total_seconds()
    is_young = age_s <= timing.late_after_s
    if age_s < timing.due_after_s:
        return Badge("●", f"live · {roughly_ago(link.last_ok_at, now)}", "good")
    if is_limited:
        return Badge("◌", f"{since} old: rate limit", "warn")
    if link.last_ok_at < timing.opened_at and not is_young:
        return Badge("◌", f"connecting… · from {ago(link.last_ok_at, now)}", "wait")
    return Badge("◌", f"{since} old", "wait" if is_young else "warn")


def next_poll(wait: "Wait | None", now: datetime) -> str:
    """When the service is asked again, counted down to the second; None: another process decides."""
    left_s = 0 if wait is None else ceil((wait.until - now).total_seconds())
    return f"asking again in {span(left_s)}" if left_s > 0 else "asking again"
