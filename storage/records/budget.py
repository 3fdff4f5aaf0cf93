"""The request budget: what a data folder's processes have learned of a service's limits, health and clock."""

from datetime import datetime, timedelta
from typing import Final, Literal

from storage.lazy_dataclass import dataclass

CLOCKS_DISAGREE_S: Final = 60.0

WaitReason = Literal["rate_limit", "own_pace", "service_down"]
"""The service asked to wait; we space our requests after a 429; it failed again and again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why no request is sent now, and until when."""

    reason: WaitReason
    until: datetime


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A service's limits, health and clock, as far as known. Moments are seconds since 1970, by our own clock."""

    paused_at_s: float = 0.0
    """When the pause was learned."""
    paused_until_s: float = 0.0
    refusals: float = 0.0
    """429s in a row."""
    rate: float = 0.0
    """Requests per second that we allow ourselves. 0: no limit was met."""
    successes: float = 0.0
    """Since the last 429, or the last failure."""
    refused_rate: float = 0.0
    """The limit as the last 429 showed it. 0: it is not known."""
    slowed_at_s: float = 0.0
    """When the rate was last lowered."""
    opened_at_s: float = 0.0
    """When the limit opened, or opens, after the last 429, as the service stated."""
    tokens: float = 0.0
    """Requests that may be sent at once; below 0: sent ahead of the rate."""
    tokens_at_s: float = 0.0
    """When the tokens were counted."""
    failures: float = 0.0
    """In a row, over all requests."""
    probe_from_s: float = 0.0
    """While the service counts as down: when to find out whether it is back."""
    probing_until_s: float = 0.0
    """Until then a request is finding out; after that its process counts as dead."""
    clock_ahead_s: float = 0.0
    """How far the service's clock is ahead of ours, as its answers were dated."""
    clock_heard: float = 0.0
    """1 once the service dated an answer; 0: how the clocks differ is not known."""

    @property
    def clock_ahead(self) -> timedelta:
        """How far the clock is ahead; zero where the clocks agree to the minute."""
        is_noise = abs(self.clock_ahead_s) < CLOCKS_DISAGREE_S
        return timedelta(0) if is_noise else timedelta(seconds=round(self.clock_ahead_s))
