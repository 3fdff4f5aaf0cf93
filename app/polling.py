"""Polling: the subjects, their intervals, and which of a data folder's processes polls."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from app.api.budget import Budget, Priority, Wait
from app.api.errors import ApiError, RateLimitedError
from app.api.pace import POLL
from app.events import ActionChanged, Announce, CacheChangedElsewhere, PollDelayed, StateChangedElsewhere, StorageFailed
from app.schedule import Job, JobWork, Schedule
from app.sync.health import HealthSync
from app.sync.polls import CANNOT_POLL, Cadence
from app.sync.runs import RunSync
from storage.cache import Cache
from storage.errors import StorageError
from storage.foreign_writes import ForeignWrites
from storage.lease import Lease
from storage.ledger import Ledger
from storage.records.activity import Subject
from storage.state import State

POLLER: Final = "poller"
"""The lease of the process that polls."""
DOORBELL_S: Final = 0.4
"""How soon another process's write is noticed."""
STANDBY_S: Final = 3.0
"""How often a process without the lease checks whether it may poll."""
ORPHANS_S: Final = 5.0
"""How soon the writes of a dead process are settled."""
READ_ONLY_S: Final = 600.0
"""How often a read-only ledger is reported again."""
LEASE_S: Final = 15.0
"""How long a dead poller keeps the others waiting."""
RENEWAL_S: Final = LEASE_S / 3
STAND_ASIDE_S: Final = 2.5 * STANDBY_S
"""How long a poller that cannot poll leaves the lease to others."""
LOOK_AGAIN_S: Final = 15.0
"""How soon a poll that waits for the budget checks it again."""
PRIORITIES: Final[dict[Subject, Priority]] = {"runs": Priority.ACTIVE, "health": Priority.HEALTH}
DEADLINE_S: Final = 300.0
"""Seconds for a whole refresh of many requests; each request has its own, much shorter deadline."""


log = logging.getLogger(__name__)


@dataclass(slots=True)
class Polling:
    """Polls runs and health while this process holds the lease, and listens to the poller otherwise."""

    runs: RunSync
    health: HealthSync
    cache: Cache
    ledger: Ledger
    lease: Lease
    announce: Announce
    runs_s: float
    """Seconds between polls of runs, without failures."""
    health_s: float
    budget: Budget = field(default_factory=Budget)
    chores: Mapping[str, JobWork] = field(default_factory=dict)
    """By name, further work of the process with the lease; each sets its own pace."""
    state: State | None = None
    """None: the state cannot be used."""
    is_poller: bool = False
    """Whether this process holds the lease."""
    _schedule: Schedule = field(default_factory=Schedule)
    _cadences: dict[Subject, Cadence] = field(default_factory=dict)
    _costs: dict[Subject, float] = field(default_factory=lambda: {"runs": POLL, "health": 1.0})
    """Requests of the last complete poll."""
    _asked_for: set[Subject] = field(default_factory=set)
    """Polls requested by a user: carried out with or without the lease."""
    _next_claim_s: float = 0.0
    """Monotonic seconds: when to renew the lease, or to try to take it."""
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to poll, at once."""
        self._cadences = {"runs": Cadence(self.runs_s), "health": Cadence(self.health_s)}
        self._schedule.start(self._catch_up)
        self._add("runs", lambda: self._poll("runs", self.runs.refresh))
        self._add("health", lambda: self._poll("health", self.health.refresh))
        self._add("orphans", self._adopt_orphans)
        for name, work in self.chores.items():
            self._add(name, partial(self._alone, work))
        self._listening = asyncio.create_task(self._listen(), name="doorbell")

    def poll_soon(self, subject: Subject) -> None:
        """Poll now because a user asked, but not before a wait that the service stated is over."""
        if cadence := self._cadences.get(subject):
            self._asked_for.add(subject)
            cadence.hasten()
            self._schedule.run_now(subject)

    async def stop(self) -> None:
        """End polling and give the lease back."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self._schedule.stop()
        await self._release()

    def _add(self, name: str, work: JobWork) -> None:
        """Add a job whose storage failures are announced."""

        async def guarded() -> float:
            try:
                return await work()
            except StorageError as error:
                self.announce(StorageFailed(str(error)))
                raise

        self._schedule.add(Job(name, guarded, DEADLINE_S, after_crash_s=max(self.runs_s, 1.0)))

    async def _poll(self, subject: Subject, refresh: Callable[[], Awaitable[object]]) -> float:
        cadence = self._cadences[subject]
        if wait_s := cadence.wait_s(time.monotonic()):
            return wait_s
        if not await self._may_poll(subject):
            return STANDBY_S
        if wait_s := await self._budget_wait_s(subject):
            await self._tell_wait(subject)
            return min(wait_s, LOOK_AGAIN_S)
        self._asked_for.discard(subject)
        sent = self.budget.sent[PRIORITIES[subject]]
        try:
            await refresh()
        except RateLimitedError:
            # A rate limit is no failure of the service: the interval is stretched to the rate.
            cadence.succeeded(time.monotonic(), await self._stretch())
        except ApiError as error:
            # The refresh recorded it and rang the doorbell; only the pace changes here.
            cadence.failed(time.monotonic())
            if subject == "runs" and isinstance(error, CANNOT_POLL):
                await self._release(stand_aside_s=STAND_ASIDE_S)
        else:
            self._costs[subject] = max(1.0, self.budget.sent[PRIORITIES[subject]] - sent)
            cadence.succeeded(time.monotonic(), await self._stretch())
        await self._tell_wait(subject)
        return cadence.wait_s(time.monotonic())

    async def _adopt_orphans(self) -> float:
        """Settle the writes of dead processes; every process does this."""
        if self.ledger.problem is not None:
            self.announce(StorageFailed(f"The ledger can only be read: {self.ledger.problem}"))
            return READ_ONLY_S
        for action in await self.ledger.adopt_orphans():
            self.announce(ActionChanged(action.action_id))
        return ORPHANS_S

    async def next_poll(self) -> Wait | None:
        """Why the next poll of runs is late, and when it comes; None: it is not late."""
        wait = await self.budget.wait(Priority.ACTIVE, self._costs["runs"])
        cadence = self._cadences.get("runs")
        if cadence is None or not self.is_poller or (wait is None and await self.budget.poll_rate() is None):
            return wait
        due_at = datetime.fromtimestamp(self.budget.now_s() + cadence.wait_s(time.monotonic()), UTC)
        return Wait("own_pace", due_at) if wait is None else replace(wait, until=max(wait.until, due_at))

    async def _tell_wait(self, subject: Subject) -> None:
        if subject == "runs" and (wait := await self.next_poll()) is not None:
            self.announce(PollDelayed(wait))

    def _catch_up(self, _jump_s: float) -> None:
        """Poll soon after a suspend or a change of the clock, even if failures had made the interval long."""
        # The lease may have run out: only its holder polls.
        self._next_claim_s = 0.0
        for subject, cadence in self._cadences.items():
            if cadence.wait_s(time.monotonic()) > cadence.base_s:
                cadence.hasten()
                self._schedule.run_now(subject)

    async def _stretch(self) -> float:
        """The factor by which the intervals must grow to keep to the rate."""
        demand = sum(cost / self._cadences[subject].base_s for subject, cost in self._costs.items())
        return demand / rate if (rate := await self.budget.poll_rate()) else 1.0

    async def _alone(self, work: JobWork) -> float:
        """The work, if this process holds the lease."""
        await self._hold_lease()
        return await work() if self.is_poller else STANDBY_S

    async def _budget_wait_s(self, subject: Subject) -> float:
        """Seconds until the budget has room for a whole poll; one that a user asked for may run ahead of it."""
        asked = subject in self._asked_for
        priority, requests = (Priority.ASKED, 1.0) if asked else (PRIORITIES[subject], self._costs[subject])
        wait = await self.budget.wait(priority, requests)
        return 0.0 if wait is None else max(0.1, wait.until.timestamp() - self.budget.now_s())

    async def _may_poll(self, subject: Subject) -> bool:
        await self._hold_lease()
        return self.is_poller or subject in self._asked_for

    async def _hold_lease(self) -> None:
        async with self._claiming:
            if time.monotonic() < self._next_claim_s:
                return
            self.is_poller = await self.lease.acquire(POLLER, self.cache.process, LEASE_S)
            self._next_claim_s = time.monotonic() + (RENEWAL_S if self.is_poller else 0.0)

    async def _release(self, *, stand_aside_s: float = 0.0) -> None:
        # The lease is not given back during a renewal, which would take it again.
        async with self._claiming:
            self._next_claim_s = time.monotonic() + stand_aside_s
            if self.is_poller:
                self.is_poller = False
                await self.lease.release(POLLER, self.cache.process)

    async def _listen(self) -> None:
        foreign = ForeignWrites(self.cache, self.ledger)
        foreign_state = ForeignWrites(*([self.state] if self.state is not None else []))
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                if self.is_poller:
                    await self._hold_lease()
                if await self.cache.reopen_if_gone() or await foreign.noticed():
                    self.announce(CacheChangedElsewhere())
                if await foreign_state.noticed():
                    self.announce(StateChangedElsewhere())
                wait_s = DOORBELL_S
            except StorageError as error:
                self.announce(StorageFailed(str(error)))
                wait_s = self.runs_s
            except Exception:
                # All failures are caught, as in a job: without this task the screen would stand still unnoticed.
                log.exception("the doorbell broke")
                wait_s = self.runs_s
