"""The record of the polls' outcomes, and the poll of the code hosts' health (spec 4.5)."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from msgspec import Struct

from app.api.client import Client
from app.api.errors import (
    ApiError,
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    NoTokenError,
    RequestTimeoutError,
    UnreachableError,
)
from app.engine.events import Announce, HealthChanged, LinkChanged
from storage.cache.cache import Cache
from storage.records import HealthChange, PollOutcome
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


class PollRecord(Struct, frozen=True):
    """Records the polls of one subject, and announces it."""

    subject: Subject
    cache: Cache
    announce: Announce
    others_poll: OthersPoll = no_others_poll

    async def record(self, at: datetime, error: ApiError | None, *, in_lab: bool, dropped: int = 0) -> None:
        """Record a poll that had this error, or none.

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


class HealthSync(Struct, frozen=True):
    """Keeps the cached health of the code hosts up to date."""

    client: Client
    cache: Cache
    announce: Announce
    clock: Callable[[], datetime]
    others_poll: OthersPoll = no_others_poll

    async def refresh(self) -> tuple[HealthChange, ...]:
        """Poll once.

        Raises:
            ApiError: The service could not be asked: the hosts' known state does not change.
        """
        try:
            report = await self.client.health()
        except ApiError as error:
            await self.record(error)
            raise
        changes = await self.cache.store_health(report, at=self.clock())
        self.announce(HealthChanged(changes))
        await self.record(None)
        return changes

    async def record(self, error: ApiError | None) -> None:
        """Record a poll of health, and announce it."""
        polls = PollRecord("health", self.cache, self.announce, self.others_poll)
        await polls.record(self.clock(), error, in_lab=self.client.in_lab)
