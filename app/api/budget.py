"""The request budget: one for all processes of a data folder.

No request is sent before a wait is over, requests are spaced if the service limits them, and while it seems down,
one request at a time probes it.
"""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final, Protocol

from app.api import pace
from app.api.errors import (
    ApiError,
    NoTokenError,
    NotSendableError,
    RateLimitedError,
    RefusedError,
    ServerFailedError,
    UnreachableError,
)
from app.api.headers import clock_ahead_s, spent_for_s
from app.api.pace import Priority
from storage.records.service_traits import BudgetState, Wait

__all__ = ["Budget", "BudgetStore", "Priority", "Wait"]

BudgetChange = Callable[[BudgetState], BudgetState]

PATIENCE_S: Final = {
    Priority.WRITE: 5.0,
    Priority.ASKED: 10.0,
    Priority.ACTIVE: 30.0,
    Priority.HEALTH: 5.0,
    Priority.BACKFILL: 60.0,
}
"""Waits up to this long are waited out; after a longer one a request fails at once, and a write is sent."""
CLOCK_STEP_S: Final = 5.0
"""Smaller differences between the clocks are noise, and not worth a write."""
HISTORY_GRACE_S: Final = 60.0
"""Refused history is requested again within this time after the wait."""
LOOK_AGAIN_S: Final = 5.0
"""How soon a waiting request notices that another process found the way free."""


class BudgetStore(Protocol):
    """Stores the state. Its methods never raise: where the state cannot be shared, the process keeps its own."""

    async def current(self) -> BudgetState:
        """The state as of a moment ago."""

    async def change(self, change: BudgetChange) -> tuple[BudgetState, BudgetState]:
        """Change the state in one step; return it before and after. The change is pure and may run in a thread."""


@dataclass(slots=True)
class MemoryStore:
    """A state that one process keeps to itself."""

    state: BudgetState = field(default_factory=BudgetState)

    async def current(self) -> BudgetState:
        """The state."""
        return self.state

    async def change(self, change: BudgetChange) -> tuple[BudgetState, BudgetState]:
        """Change the state; before and after."""
        before, self.state = self.state, change(self.state)
        return before, self.state


@dataclass(slots=True)
class Budget:
    """Every request takes its turn here and reports its outcome."""

    store: BudgetStore = field(default_factory=MemoryStore)
    now_s: Callable[[], float] = time.time
    """Seconds since 1970: the only clock that processes share."""
    draw: Callable[[], float] = random.random
    """Between 0 and 1: spreads simultaneous requests."""
    sent: dict[Priority, int] = field(default_factory=lambda: dict.fromkeys(Priority, 0))
    """The number of requests so far."""
    _history_waits_until_s: float = 0.0
    """Until then polls leave history its share."""
    _state: BudgetState = field(default_factory=BudgetState)
    """The state as it was read last."""
    _succeeded: deque[float] = field(default_factory=lambda: deque(maxlen=1_000))
    """Times of the last successes."""
    _ahead_s: deque[float] = field(default_factory=lambda: deque(maxlen=5))
    """How far the service's clock was ahead in the last answers."""
    _changes: set[asyncio.Task[None]] = field(default_factory=set)
    """Changes that are being stored; the next request waits for them."""

    async def wait(self, priority: Priority = Priority.ACTIVE, requests: float = pace.POLL) -> Wait | None:
        """Why this many requests would have to wait, and until when; None: they may be sent now."""
        await self.load()
        found = pace.wait_until(self._state, priority, self.now_s(), requests)
        return None if found is None else Wait(found[0], datetime.fromtimestamp(found[1], UTC))

    async def poll_rate(self) -> float | None:
        """Requests per second for polls, so that history gets its share; None: no limit is known."""
        await self.load()
        share = 1 - pace.HISTORY_SHARE if self.now_s() < self._history_waits_until_s else 1.0
        return share * self._state.rate or None

    async def load(self) -> None:
        """Read the state of other processes."""
        await self.settle()
        self._state = await self.store.current()

    @asynccontextmanager
    async def turn(self, priority: Priority, until_s: float = 0.0) -> AsyncIterator[None]:
        """Wait for the turn of one request, until `until_s` at most, and note its outcome.

        Raises:
            RateLimitedError: A wait is not over then; nothing was sent. Never for a write.
            UnreachableError: The service seems down, and it is too soon to ask again; nothing was sent.
        """
        probes = await self._admit(priority, until_s or self.now_s() + PATIENCE_S[priority])
        self.sent[priority] += 1
        sent_s = self.now_s()
        try:
            yield
        except ApiError as error:
            self._note(priority, error, sent_s)
            raise
        except BaseException:
            # Cancelled before its answer: another request may probe the service.
            self._later(pace.released, needed=probes)
            raise
        else:
            self._note(priority, None, sent_s)

    async def retry_s(self, priority: Priority, error: RateLimitedError) -> float:
        """When a refused read may be sent again, in seconds since 1970."""
        wait = await self.wait(priority, 1)
        free_s = self.now_s() if wait is None else wait.until.timestamp()
        if priority is Priority.ASKED:
            return free_s if error.retry_after_s is not None else math.inf
        # Others of the organization wait for the same moment.
        longest_s = min(1 / max(self._state.rate, pace.SLOWEST), pace.LONGEST_PAUSE_S)
        return free_s + (pace.ASIDE + self.draw()) * longest_s

    def hear(self, headers: Mapping[str, str], sent_s: float) -> None:
        """Learn from an answer's headers: a limit that is spent, and the service's clock."""
        now_s = self.now_s()
        if wait_s := spent_for_s(headers):
            self._later(partial(pace.paused, now_s=now_s, wait_s=wait_s))
        if (ahead_s := clock_ahead_s(headers, sent_s, now_s)) is None:
            return
        self._ahead_s.append(ahead_s)
        # One answer may have been under way for long, or come from a proxy's store.
        likely_s = sorted(self._ahead_s)[len(self._ahead_s) // 2]
        if abs(likely_s - self._state.clock_ahead_s) > CLOCK_STEP_S or not self._state.clock_heard:
            self._later(lambda state: replace(state, clock_ahead_s=likely_s, clock_heard=1.0))

    @property
    def clock_ahead(self) -> timedelta:
        """How far the service's clock is ahead of ours; zero where they agree to the minute."""
        return self._state.clock_ahead

    @property
    def heard_ahead(self) -> timedelta | None:
        """How far the service's clock was ahead of ours at its last answer. None: it had no date."""
        return timedelta(seconds=self._ahead_s[-1]) if self._ahead_s else None

    async def settle(self) -> None:
        """Wait until all notes are in the shared state."""
        while self._changes:
            await asyncio.gather(*self._changes)

    async def _admit(self, priority: Priority, until_s: float) -> bool:
        """Wait for the turn; return whether this request is the probe."""
        while True:
            await self.load()
            now_s, state, after = self.now_s(), self._state, self._state
            found = pace.wait_until(state, priority, now_s, 1)
            if found is None and not pace.is_free(state, now_s):
                state, after = await self._take(priority, now_s)
                found = pace.wait_until(state, priority, now_s, 1)
            left_s = until_s - now_s
            if found is None or (priority is Priority.WRITE and found[1] > until_s):
                return after.probing_until_s > state.probing_until_s
            reason, free_s = found
            if priority is Priority.BACKFILL:
                self._history_waits_until_s = max(now_s, free_s) + HISTORY_GRACE_S
            if free_s > until_s or left_s <= 0:
                raise _refusal(Wait(reason, datetime.fromtimestamp(free_s, UTC)), free_s - now_s)
            await asyncio.sleep(max(0.001, min(free_s - now_s, left_s, LOOK_AGAIN_S)))

    async def _take(self, priority: Priority, now_s: float) -> tuple[BudgetState, BudgetState]:
        taken = partial(pace.admitted, priority=priority, now_s=now_s)
        if priority is Priority.WRITE:
            # A write waits for no database: its cost is noted later.
            self._later(taken, needed=False)
            return self._state, self._state
        before, self._state = await self.store.change(taken)
        return before, self._state

    def _note(self, priority: Priority, error: ApiError | None, sent_s: float) -> None:
        now_s = self.now_s()
        if isinstance(error, RateLimitedError):
            wait_s, throughput = error.retry_after_s, self._throughput(now_s + (error.retry_after_s or 0.0))
            self._later(
                partial(
                    pace.limited, now_s=now_s, sent_s=sent_s, wait_s=wait_s, throughput=throughput, draw=self.draw()
                )
            )
        elif error is None or (isinstance(error, RefusedError) and not isinstance(error, ServerFailedError)):
            # A service that refuses is not down.
            self._succeeded.append(now_s)
            state = self._state
            needed = state.rate or state.failures or state.refusals or state.probing_until_s
            self._later(partial(pace.answered, priority=priority, now_s=now_s), needed=bool(needed))
        elif isinstance(error, (NoTokenError, NotSendableError)):
            self._later(pace.released, needed=self._state.probing_until_s > 0)
        else:
            self._later(partial(pace.failed, now_s=now_s, draw=self.draw()))

    def _throughput(self, opens_s: float) -> pace.Throughput:
        """What was let through in the last minute; the limit opens again at `opens_s`."""
        times = [at_s for at_s in self._succeeded if self.now_s() - pace.MEASURED_S <= at_s <= self.now_s()]
        # The best of all sequences of the last ones: before them, less may have been requested than was allowed.
        speeds = (count / max(1.0, opens_s - at_s) for count, at_s in enumerate(reversed(times), 1))
        return pace.Throughput(len(times), max(islice(speeds, pace.CHANCE, None), default=0.0))

    def _later(self, change: BudgetChange, *, needed: bool = True) -> None:
        # Not awaited: between an answer and its reader nothing may fail or wait.
        if needed:
            self._state = change(self._state)
            task = asyncio.get_running_loop().create_task(self._share(change))
            self._changes.add(task)
            task.add_done_callback(self._changes.discard)

    async def _share(self, change: BudgetChange) -> None:
        _, self._state = await self.store.change(change)


def _refusal(wait: Wait, wait_s: float) -> ApiError:
    at = f"{wait.until.astimezone():%H:%M:%S}"
    if wait.reason == "service_down":
        return UnreachableError(
            f"The service failed again and again; it is asked again at {at}, in {wait_s:.0f} s.", surely_not_sent=True
        )
    if wait.reason == "own_pace":
        message = f"The service limits requests, so they are spaced; the next one is due at {at}, in {wait_s:.0f} s."
    else:
        message = f"The service asked to wait until {at}; {wait_s:.0f} s are left."
    return RateLimitedError(message, retry_after_s=wait_s)
