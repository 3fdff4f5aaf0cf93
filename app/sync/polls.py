"""The interval of polls, and the record of their outcomes."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from app.api.errors import (
    ApiError,
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    NoTokenError,
    RequestTimeoutError,
    UnreachableError,
)
from app.events import Announce, LinkChanged
from storage.cache import Cache
from storage.records import PollOutcome
from storage.records.activity import Subject

CANNOT_POLL: Final = (
    NoTokenError,
    NotAuthorizedError,
    ForbiddenError,
    NotFoundError,
    UnreachableError,
    RequestTimeoutError,
)
"""Failures that another process may not have: its token, address or network can differ."""

CEILING: Final = 16
"""The slowest cadence, as a multiple of the configured one."""
RECOVERY: Final = 2.0
"""The part of the base interval that a success takes off a slowed cadence."""

SPREAD: Final = 0.2
"""The random part by which a stretched interval is shortened or lengthened."""
OthersPoll = Callable[[], Awaitable[bool]]
"""Whether another process polls now."""


@dataclass(slots=True)
class Cadence:
    """When the next poll of one subject is due. Times are seconds of a monotonic clock."""

    base_s: float
    jitter: Callable[[], float] = random.random
    """Between 0 and 1: spreads the retries of many consoles over the interval."""
    interval_s: float = field(init=False)
    due_at_s: float = field(init=False, default=0.0)
    """0: the poll is due at once."""

    def __post_init__(self) -> None:
        self.interval_s = self.base_s

    def succeeded(self, now_s: float, stretch: float = 1.0) -> None:
        """Move the cadence towards its base, step by step; `stretch` multiplies it while requests are rationed."""
        self.interval_s = max(self.base_s, self.interval_s - RECOVERY * self.base_s)
        stretched_s = self.base_s * stretch * (1 + SPREAD * (2 * self.jitter() - 1)) if stretch > 1 else 0.0
        self.due_at_s = now_s + max(self.interval_s, stretched_s)

    def failed(self, now_s: float) -> None:
        """Double the interval, up to the ceiling; the wait is random, from the base to the interval."""
        self.interval_s = min(self.base_s * CEILING, self.interval_s * 2)
        self.due_at_s = now_s + self.base_s + self.jitter() * (self.interval_s - self.base_s)

    def hasten(self) -> None:
        """Make the next poll due at once."""
        self.due_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Seconds until it is due; 0 when it is."""
        return max(0.0, self.due_at_s - now_s)


async def no_others_poll() -> bool:
    """No other process polls."""
    return False


@dataclass(frozen=True, slots=True)
class PollRecord:
    """Records the polls of one subject, and rings the doorbell."""

    subject: Subject
    cache: Cache
    announce: Announce
    others_poll: OthersPoll = no_others_poll

    async def keep(self, at: datetime, error: ApiError | None, *, in_lab: bool, dropped: int = 0) -> None:
        """Record a poll that ended with this error, or with none.

        A failure that may concern only this process does not count for the link while another process polls.
        """
        how = PollOutcome(
            self.subject,
            at,
            None if error is None else error.kind,
            None if error is None else error.message,
            getattr(error, "status", None),
            in_lab,
            dropped,
            is_own=isinstance(error, CANNOT_POLL) and await self.others_poll(),
        )
        state = await self.cache.record_poll(how)
        self.announce(LinkChanged(state, own_failure=None if error is None or state.is_failing else how))
