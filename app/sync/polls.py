"""The record of the polls' outcomes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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

OthersPoll = Callable[[], Awaitable[bool]]
"""Whether another process polls now."""


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
