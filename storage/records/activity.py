"""Traffic between this machine and the service: the link, the log of polls and writes, and the service's limits."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from storage.records.health import PlatformHealth

Subject = Literal["runs", "health"]


class PollOutcome(Struct, frozen=True):
    """One poll of a subject, successful or not."""

    subject: Subject
    at: datetime
    error_kind: str | None = None
    """None after a success, otherwise an `ApiError.kind`."""
    error_message: str | None = None
    http_status: int | None = None
    in_lab: bool = False
    """Whether the service reported that it is a lab, which scripts faults."""
    dropped: int = 0
    """Entries of its lists that had no usable id."""
    is_own: bool = False
    """It failed for a reason of this process, such as a refused token, while another one polls: the link stays."""


class LinkState(Struct, frozen=True):
    """The link's state by the polls of each subject; it survives a restart in the cache."""

    subject: Subject
    last_ok_at: datetime | None = None
    """None: never yet."""
    failing_since: datetime | None = None
    """None if the last poll succeeded, or before the first."""
    failures: int = 0
    error_kind: str | None = None
    error_message: str | None = None
    in_lab: bool = False
    """Whether the service's last answer came from a lab."""
    dropped: int = 0
    """Entries of the last answered poll that had no usable id."""

    @property
    def is_failing(self) -> bool:
        return self.failing_since is not None


def link_of(links: Iterable[LinkState], subject: Subject) -> LinkState | None:
    return next((link for link in links if link.subject == subject), None)


class Figures(Struct, frozen=True):
    """The facts about a profile in a header."""

    links: tuple[LinkState, ...]
    health: tuple[PlatformHealth, ...]
    runs: dict[str, int]
    """The number of runs by status, without those that the service no longer lists."""
    failed_lately: int


class PollSpan(Struct, frozen=True):
    """Consecutive polls of one subject with the same outcome."""

    span_id: int
    """Grows with time."""
    subject: Subject
    first_at: datetime
    last_at: datetime
    polls: int
    error_kind: str | None = None
    """None: they were answered. Otherwise an `ApiError.kind`."""
    error_message: str | None = None
    http_status: int | None = None


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
    """Why requests have to wait, and until when."""

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
    """The time until which polls and history wait on their own account, after a 429 or several failures."""
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
        if is_noise:
            return timedelta(0)
        return timedelta(seconds=round(self.clock_ahead_s))
