"""What is known of a service: how it filters and shows times, its habits, its clock, its limits and its health."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

DateFilter = Literal["created", "updated", "ignored", "unknown"]
"""Which time of a run the service compares with `date_from` and `date_to`."""

Habit = Literal["ignores_status", "endless", "no_results"]
"""A habit of the service, which counts as known for a while after it was seen.

`ignores_status`: a list filtered by a status shows others. `endless`: the list without readable times never ends.
`no_results`: it does not offer results (docs/results.md).
"""
CLOCKS_DISAGREE_S: Final = 60.0
WaitReason = Literal["rate_limit", "own_pace", "service_down"]
"""`rate_limit`: the service asked us to wait. `own_pace`: we space our requests after a 429. `service_down`: it failed
several times in a row."""


@dataclass(frozen=True, slots=True)
class ServiceTraits:
    """How a service filters and shows times, as far as that was proven."""

    date_filter: DateFilter = "unknown"
    display_offset: timedelta = timedelta(0)
    """How far the times shown are ahead of those that the filter uses: some services show local time."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """The clock that dates the runs, compared with ours."""

    ahead: timedelta = timedelta(0)
    is_known: bool = False
    """Whether answers and runs are dated by the same clock. If not, the times of runs may be hours off."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why no request is sent now, and until when."""

    reason: WaitReason
    until: datetime


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A service's limits, health and clock, as far as known. Moments are seconds since 1970, by our own clock."""

    paused_at_s: float = 0.0
    """When the service asked for the pause."""
    paused_until_s: float = 0.0
    refusals: float = 0.0
    """How many 429s came in a row."""
    rate: float = 0.0
    """Requests per second that we allow ourselves. 0: no limit was met."""
    successes: float = 0.0
    """How many requests succeeded since the last 429 or failure."""
    refused_rate: float = 0.0
    """Requests per second at which the last 429 came. 0: not known."""
    slowed_at_s: float = 0.0
    """When the rate was last lowered."""
    opened_at_s: float = 0.0
    """From when on the service takes requests again after the last 429, as it stated."""
    tokens: float = 0.0
    """How many requests may be sent at once. Below 0: so many were sent ahead of the rate."""
    tokens_at_s: float = 0.0
    """When the tokens were counted."""
    failures: float = 0.0
    """How many requests failed in a row."""
    probe_from_s: float = 0.0
    """While the service counts as down: when the next request may try whether it is back."""
    probing_until_s: float = 0.0
    """Until when the trying request has time; after that its process counts as dead."""
    clock_ahead_s: float = 0.0
    """How far the service's clock is ahead of ours, as its answers were dated."""
    clock_heard: float = 0.0
    """1 once the service dated an answer; 0: how the clocks differ is not known."""

    @property
    def clock_ahead(self) -> timedelta:
        """How far the service's clock is ahead of ours; zero if they differ by less than a minute."""
        is_noise = abs(self.clock_ahead_s) < CLOCKS_DISAGREE_S
        return timedelta(0) if is_noise else timedelta(seconds=round(self.clock_ahead_s))
