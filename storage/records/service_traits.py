"""The known traits of a service: its clock, its limits and its health."""

from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

CLOCKS_DISAGREE_S: Final = 60.0
WaitReason = Literal["rate_limit", "own_pace", "service_down"]
"""`rate_limit`: the service asked us to wait. `own_pace`: we wait longer than asked after a 429. `service_down`: it
failed several times in a row."""


class RunClock(Struct, frozen=True):
    """The clock that dates the runs, compared with ours."""

    ahead: timedelta = timedelta(0)
    is_known: bool = False
    """Whether answers and runs are dated by the same clock. If not, the times of runs may be hours off."""


class Wait(Struct, frozen=True):
    """Why no request is sent now, and until when."""

    reason: WaitReason
    until: datetime


class BudgetState(Struct, frozen=True):
    """A service's limits, health and clock, as far as known. Moments are seconds since 1970, by our own clock."""

    paused_at_s: float = 0.0
    """When the service asked for the pause."""
    paused_until_s: float = 0.0
    refusals: float = 0.0
    """How many 429s came in a row."""
    resting_until_s: float = 0.0
    """Until then polls and history wait on their own account, after a 429 or several failures."""
    failures: float = 0.0
    """How many requests failed in a row."""
    clock_ahead_s: float = 0.0
    """How far the service's clock is ahead of this machine's, according to its answers' dates."""
    clock_heard: float = 0.0
    """1 once the service dated an answer; 0: how the clocks differ is not known."""

    @property
    def clock_ahead(self) -> timedelta:
        """How far the service's clock is ahead of this machine's; zero if they differ by less than a minute."""
        is_noise = abs(self.clock_ahead_s) < CLOCKS_DISAGREE_S
        return timedelta(0) if is_noise else timedelta(seconds=round(self.clock_ahead_s))
