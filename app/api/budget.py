"""The request budget: the service's limits, health and clock, as known to all processes of a data folder.

No request is sent before a wait that the service stated is over. After a 429, polls and history wait a random while
longer, and history is fetched no faster than anything else. After several failures in a row they also wait.
"""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from app.api.errors import (
    ApiError,
    NoTokenError,
    NotSendableError,
    RateLimitedError,
    RefusedError,
    ServerFailedError,
    UnreachableError,
)
from app.api.timestamps import clock_ahead_s
from storage.cache.cache import Cache
from storage.errors import StorageError
from storage.records.activity import BudgetState, Wait

T = TypeVar("T")
BudgetChange = Callable[[BudgetState], BudgetState]


class Priority(IntEnum):
    """The purpose of a request; lower values are more urgent."""

    WRITE = 0
    ASKED = 1
    """A user is waiting."""
    ACTIVE = 2
    """The newest and the active runs."""
    HEALTH = 3
    BACKFILL = 4


POLLS: Final = frozenset({Priority.ACTIVE, Priority.HEALTH})
PATIENCE_S: Final = {
    Priority.WRITE: 5.0,
    Priority.ASKED: 10.0,
    Priority.ACTIVE: 30.0,
    Priority.HEALTH: 5.0,
    Priority.BACKFILL: 60.0,
}
"""Waits up to this long are waited out; after a longer one a request fails at once, and a write is sent."""
CLOCK_STEP_S: Final = 5.0
"""The smallest difference between the clocks that is worth a write: less is noise."""
POLL_S: Final = 1.0
"""A poll may use a state that was read at most this long ago."""
LOOK_AGAIN_S: Final = 5.0
"""How soon a waiting request notices that another process found the way free."""
FAILURES_TO_REST: Final = 5
"""Failures in a row after which the service counts as down."""
MAX_REST_S: Final = 60.0
"""The most that polls and history wait on their own account."""
CLOCK_SLACK_S: Final = 5.0
HISTORY_HELD_S: Final = 600.0
"""How long after a 429 history is fetched no faster than anything else."""
MAX_CREDIT: Final = 8
GIVES_WAY_S: Final = 0.1
"""How long requests in the background wait after a key."""


@dataclass(slots=True)
class Budget:
    """Every request waits here for its turn and reports its outcome."""

    cache: Cache | None = None
    """Shares the state with other processes; without a usable cache, this process keeps its own state."""
    now_s: Callable[[], float] = time.time
    """Seconds since 1970: the only clock that processes share."""
    draw: Callable[[], float] = random.random
    """A random number from 0 to 1, which spreads simultaneous requests."""
    sent: dict[Priority, int] = field(default_factory=lambda: dict.fromkeys(Priority, 0))
    heard_ahead: timedelta | None = None
    """The service clock's lead over this machine's at the last answer; None if that was undated or late."""
    _state: BudgetState = field(default_factory=BudgetState)
    _read_s: float = -math.inf
    """When the state was read (monotonic seconds)."""
    _gives_way_until_s: float = 0.0
    """The time until which requests in the background wait, by the event loop's clock."""
    _held_until_s: float = 0.0
    """The time until which each other request that is answered lets one for history follow."""
    _credit: int = 0
    """How many requests for history may follow now."""
    _changes: set[asyncio.Task[None]] = field(default_factory=set)
    """Changes that are being stored; the next request waits for them."""

    async def wait(self, priority: Priority = Priority.ACTIVE, *, max_age_s: float = 0.0) -> Wait | None:
        """Why a request would have to wait, and until when; None if it can be sent now.

        The state of other processes is not read again if it was read less than `max_age_s` ago.
        """
        if time.monotonic() >= self._read_s + max_age_s:
            await self.load()
        state = self._state
        now_s = self.now_s()
        # A wait that starts in the future or ends too late means that the clock was set back; it might never expire.
        if _is_paused(state, now_s):
            return Wait("rate_limit", datetime.fromtimestamp(state.paused_until_s, UTC))
        latest_s = max(now_s, state.paused_until_s) + MAX_REST_S + CLOCK_SLACK_S
        if priority >= Priority.ACTIVE and now_s < state.resting_until_s <= latest_s:
            is_down = state.failures >= FAILURES_TO_REST
            return Wait("service_down" if is_down else "own_pace", datetime.fromtimestamp(state.resting_until_s, UTC))
        if priority is Priority.BACKFILL and self._is_held and not self._credit:
            return Wait("own_pace", datetime.fromtimestamp(now_s + 1, UTC))
        return None

    async def load(self) -> None:
        """Read the state of other processes."""
        await self.settle()
        with suppress(StorageError):
            self._state = self._state if self.cache is None else await self.cache.budget()
            self._read_s = time.monotonic()

    @asynccontextmanager
    async def turn(self, priority: Priority, until_s: float = 0.0) -> AsyncIterator[None]:
        """Wait for the turn of one request, until `until_s` at most, and note its outcome.

        Raises:
            RateLimitedError: A wait is not over then; nothing was sent. Never for a write.
            UnreachableError: The service seems down, and it is too soon to ask again; nothing was sent.
        """
        until_s = until_s or self.now_s() + PATIENCE_S[priority]
        max_age_s = POLL_S if priority in POLLS else 0.0
        while (wait := await self.wait(priority, max_age_s=max_age_s)) is not None:
            free_s = wait.until.timestamp()
            now_s = self.now_s()
            if free_s > until_s and priority is Priority.WRITE:
                break
            if free_s > until_s:
                # Without the remaining seconds: the message may stay on screen for a long time.
                at = f"{wait.until.astimezone():%H:%M:%S}"
                if wait.reason == "service_down":
                    reason = f"The service failed again and again; it is asked again at {at}."
                    raise UnreachableError(reason, surely_not_sent=True)
                reason = f"The service asked to wait until {at}."
                if wait.reason == "own_pace":
                    reason = f"The service limits requests, so the next one is sent at {at}."
                raise RateLimitedError(reason, retry_after_s=free_s - now_s)
            await asyncio.sleep(max(0.001, min(free_s - now_s, LOOK_AGAIN_S)))
        # Once: keys that follow each other fast must not stop the fetching.
        left_s = self._gives_way_until_s - asyncio.get_running_loop().time()
        if priority >= Priority.ACTIVE and left_s > 0:
            await asyncio.sleep(left_s)
        if priority is Priority.BACKFILL and self._is_held:
            self._credit -= 1
        self.sent[priority] += 1
        try:
            yield
        except ApiError as error:
            self._note(priority, error)
            raise
        self._note(priority, None)

    async def in_turn(self, priority: Priority, read: Callable[[], Awaitable[T]]) -> T:
        """Send a read in its turn. After a 429 it is sent once more, if the wait is stated and short for its priority.

        A poll is not sent again: the next one comes soon enough. Raises the errors of `read`, and `RateLimitedError` or
        `UnreachableError` if nothing was sent.
        """
        until_s = self.now_s() + PATIENCE_S[priority]
        try:
            async with self.turn(priority, until_s):
                return await read()
        except RateLimitedError as error:
            if error.retry_after_s is None or priority in POLLS:
                raise
            wait = await self.wait(priority)
            if wait is not None and wait.until.timestamp() > until_s:
                raise
        async with self.turn(priority, until_s):
            return await read()

    def read_headers(self, headers: Mapping[str, str], sent_s: float) -> None:
        """Learn the service's clock from an answer's headers."""
        now_s = self.now_s()
        ahead_s = clock_ahead_s(headers, sent_s, now_s)
        # The date of a slow answer says little about the clock.
        if ahead_s is None or now_s - sent_s > CLOCK_STEP_S:
            self.heard_ahead = None
            return
        self.heard_ahead = timedelta(seconds=ahead_s)
        if abs(ahead_s - self._state.clock_ahead_s) > CLOCK_STEP_S or not self._state.clock_heard:
            self._store_later(lambda state: replace(state, clock_ahead_s=ahead_s, clock_heard=1.0))

    @property
    def clock_ahead(self) -> timedelta:
        """How far the service's clock is ahead of this machine's; zero if they agree to the minute."""
        return self._state.clock_ahead

    def give_way(self) -> None:
        """Briefly hold back background requests, since key presses are handled on the same thread."""
        self._gives_way_until_s = asyncio.get_running_loop().time() + GIVES_WAY_S

    async def settle(self) -> None:
        """Wait until all notes are in the shared state."""
        while self._changes:
            await asyncio.gather(*self._changes)

    @property
    def _is_held(self) -> bool:
        return self.now_s() < self._held_until_s <= self.now_s() + HISTORY_HELD_S

    def _note(self, priority: Priority, error: ApiError | None) -> None:
        now_s = self.now_s()
        if isinstance(error, RateLimitedError):
            self._held_until_s = now_s + HISTORY_HELD_S
            self._credit = 0
            self._store_later(partial(_after_rate_limit, now_s=now_s, wait_s=error.retry_after_s, draw=self.draw()))
        elif error is None or (isinstance(error, RefusedError) and not isinstance(error, ServerFailedError)):
            # A service that refuses requests is not down.
            if priority is not Priority.BACKFILL:
                self._credit = min(MAX_CREDIT, self._credit + 1)
            if self._state.failures or self._state.refusals:
                # An answer to a user says nothing about the polls' share of the limit.
                self._store_later(
                    lambda state: replace(
                        state,
                        failures=0.0,
                        refusals=0.0,
                        resting_until_s=0.0 if state.failures else state.resting_until_s,
                    )
                )
        elif not isinstance(error, (NoTokenError, NotSendableError)):
            self._store_later(partial(_after_failure, now_s=now_s, draw=self.draw()))

    def _store_later(self, change: BudgetChange) -> None:
        # Not awaited: between an answer and its reader nothing may fail or wait.
        self._state = change(self._state)
        task = asyncio.create_task(self._share(change))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _share(self, change: BudgetChange) -> None:
        # A write to the service must not fail because of our own files, whose failures are reported elsewhere.
        with suppress(StorageError):
            self._state = self._state if self.cache is None else await self.cache.change_budget(change)


def _is_paused(state: BudgetState, now_s: float) -> bool:
    return state.paused_at_s - CLOCK_SLACK_S <= now_s < state.paused_until_s


def _after_rate_limit(state: BudgetState, now_s: float, *, wait_s: float | None, draw: float) -> BudgetState:
    if wait_s is not None:
        until_s = max(state.paused_until_s if _is_paused(state, now_s) else 0.0, now_s + wait_s)
        state = replace(state, paused_at_s=now_s, paused_until_s=until_s)
    refusals = state.refusals + 1
    # Other clients of the organization wait for the same moment, so add a random delay.
    rest_s = draw * min(MAX_REST_S, 2.0 ** min(16.0, refusals))
    resting_until_s = now_s + (wait_s or 0.0) + rest_s
    return replace(state, refusals=refusals, failures=0.0, resting_until_s=resting_until_s)


def _after_failure(state: BudgetState, now_s: float, draw: float) -> BudgetState:
    failures = state.failures + 1
    rest_s = draw * min(MAX_REST_S, 2.0 ** min(16.0, failures - FAILURES_TO_REST + 1))
    is_down = failures >= FAILURES_TO_REST
    return replace(state, failures=failures, resting_until_s=now_s + rest_s if is_down else state.resting_until_s)
