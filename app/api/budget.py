"""What this process may ask of the service: nothing before a wait is over, and one probe while it seems down."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from app.api.errors import ApiError, RateLimitedError, RefusedError, ServerFailedError, UnreachableError


class Priority(IntEnum):
    """What a request is for; the lower, the more urgent."""

    WRITE = 0
    ASKED = 1
    """A person waits for it."""
    ACTIVE = 2
    """The newest and the active runs."""
    HEALTH = 3
    BACKFILL = 4


FAILURES_TO_OPEN: Final = 5
"""Failures in a row after which the service counts as down."""


@dataclass(slots=True)
class Budget:
    """What one process may ask of one service; every read takes its turn, writes only report how they went.

    It never sleeps: a read that comes too early fails at once with the time left to wait, which the caller can show.
    When to ask again is the poller's decision.
    """

    now_s: Callable[[], float] = time.monotonic
    pause_until_s: float = 0.0
    """On the clock of `now_s`; the service asked not to be called until then."""
    failures: int = 0
    """In a row, over all requests."""
    _probing: bool = False

    def wait_s(self) -> float:
        """Seconds left to wait; 0: none."""
        return max(0.0, self.pause_until_s - self.now_s())

    @property
    def is_open(self) -> bool:
        """Whether the service counts as down: then one request at a time finds out whether it is back."""
        return self.failures >= FAILURES_TO_OPEN

    @asynccontextmanager
    async def turn(self, priority: Priority) -> AsyncIterator[None]:
        """One read; the block's outcome is noted.

        Raises:
            RateLimitedError: The wait that the service asked for is not over; nothing was sent.
            UnreachableError: The service seems down and another request is finding out; nothing was sent.
        """
        if wait_s := self.wait_s():
            raise RateLimitedError(f"The service asked to wait; {wait_s:.0f} s are left.", retry_after_s=wait_s)
        if self.is_open and (self._probing or priority is Priority.BACKFILL):
            raise UnreachableError(
                f"The service failed {self.failures} times in a row; one request is finding out whether it is back.",
                surely_not_sent=True,
            )
        probes = self.is_open
        if probes:
            self._probing = True
        try:
            yield
        except ApiError as error:
            self.note(error)
            raise
        else:
            self.note(None)
        finally:
            if probes:
                self._probing = False

    def note(self, error: ApiError | None) -> None:
        """Remember how a request went; None: well."""
        if isinstance(error, RateLimitedError) and error.retry_after_s is not None:
            self.pause_until_s = max(self.pause_until_s, self.now_s() + error.retry_after_s)
        if error is None or (isinstance(error, RefusedError) and not isinstance(error, ServerFailedError)):
            # A service that refuses is not down.
            self.failures = 0
        else:
            self.failures += 1
