"""Polling: runs, the code hosts' health (spec 4.5), their intervals, and which of a data folder's processes polls."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from app.api.budget import POLL_S, Priority
from app.api.errors import ApiError, InternalError, RateLimitedError
from app.engine.events import (
    ActionChanged,
    FilesChangedElsewhere,
    HealthChanged,
    PollDelayed,
    StateChangedElsewhere,
    StorageFailed,
)
from app.sync.runs import CANNOT_POLL, POLLER, RunSync, SubjectSync
from app.sync.schedule import JobWork, Schedule
from storage.errors import StorageError
from storage.ledger import Ledger
from storage.private_file import last_written
from storage.records.activity import Subject, Wait

ELSEWHERE_S: Final = 1.0
"""How soon another process's write is noticed."""
STANDBY_S: Final = 3.0
"""How often a process without the lease checks whether it may poll."""
ORPHANS_S: Final = 15.0
"""How soon the writes of a dead process are settled."""
READ_ONLY_S: Final = 600.0
"""How often a read-only ledger is reported again."""
LEASE_S: Final = 15.0
"""How long a dead poller keeps the others waiting."""
RENEWAL_S: Final = LEASE_S / 3
STAND_ASIDE_S: Final = 2.5 * STANDBY_S
"""How long a failing poller leaves the lease to others."""
LOOK_AGAIN_S: Final = 15.0
"""How soon a poll that waits for the budget checks it again."""
PRIORITIES: Final[dict[Subject, Priority]] = {"runs": Priority.ACTIVE, "health": Priority.HEALTH}
MAX_S: Final = 60.0
"""The longest interval after failures, unless the configured one is longer: no page should come later for them."""
SLOWEST_S: Final = 900.0
"""The longest interval after refusals."""
RECOVERY_FACTOR: Final = 0.9
"""The factor by which a success shortens an interval that refusals made long."""
DEADLINE_S: Final = 300.0
"""Seconds for a whole refresh of many requests; each request has its own, much shorter deadline."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Cadence:
    """When the next poll of one subject is due. Times are seconds of a monotonic clock.

    A failure doubles the interval, and a success halves it. A refusal multiplies it by four, and a success shortens it
    by a tenth: so many consoles of one organization find their share of its limit.
    """

    base_s: float
    draw: Callable[[], float] = random.random
    """A random number from 0 to 1, which spreads the polls of many consoles over the interval."""
    interval_s: float = field(init=False)
    rationed_s: float = field(init=False, default=0.0)
    """The interval after refusals. 0: the service refuses nothing."""
    due_at_s: float = field(init=False, default=0.0)
    """0: the poll is due at once."""

    def __post_init__(self) -> None:
        self.interval_s = self.base_s

    def record_success(self, now_s: float) -> None:
        self.interval_s = max(self.base_s, self.interval_s / 2)
        rationed_s = RECOVERY_FACTOR * self.rationed_s
        self.rationed_s = rationed_s if rationed_s > self.base_s else 0.0
        self.due_at_s = now_s + max(self.interval_s, self.rationed_s * (0.8 + 0.4 * self.draw()))

    def record_failure(self, now_s: float) -> None:
        """Double the interval, up to the ceiling; the wait is random, from the base to the interval."""
        self.interval_s = min(max(MAX_S, self.base_s), self.interval_s * 2)
        longest_s = max(self.interval_s, self.rationed_s)
        self.due_at_s = now_s + self.base_s + self.draw() * (longest_s - self.base_s)

    def record_refusal(self, now_s: float, wait_s: float) -> None:
        self.rationed_s = min(max(SLOWEST_S, self.base_s), 4 * max(self.rationed_s, self.base_s))
        self.due_at_s = now_s + wait_s + self.rationed_s * (0.5 + self.draw())

    def wait_s(self, now_s: float) -> float:
        """Seconds until it is due; 0 when it is."""
        return max(0.0, self.due_at_s - now_s)


class HealthSync(SubjectSync):
    """Keeps the cached health of the code hosts up to date."""

    subject = "health"

    async def refresh(self) -> None:
        """Poll once; if the service could not be asked, the hosts' known state does not change."""
        try:
            report = await self.client.health()
        except ApiError as error:
            await self.record(error)
            raise
        changes = await self.cache.store_health(report, at=self.clock())
        await self.record(None)
        # Together with the end of the poll, so that listeners read once.
        self.announce(HealthChanged(changes))


@dataclass(slots=True)
class Polling:
    """Polls runs and health while this process holds the lease, and listens to the poller otherwise."""

    runs: RunSync
    health: HealthSync
    ledger: Ledger
    runs_s: float
    """Seconds between polls of runs, without failures."""
    health_s: float
    chores: Mapping[str, JobWork] = field(default_factory=dict)
    """Further work, by name, of the process with the lease; each part sets its own pace."""
    is_poller: bool = False
    schedule: Schedule = field(init=False)
    _cadences: dict[Subject, Cadence] = field(default_factory=dict)
    _asked_for: set[Subject] = field(default_factory=set)
    """Polls requested by a user: carried out with or without the lease."""
    _next_claim_s: float = 0.0
    """Monotonic seconds: when to renew the lease, or to try to take it."""
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _listening: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        announce = self.runs.announce
        self.schedule = Schedule(DEADLINE_S, max(self.runs_s, 1.0), lambda problem: announce(StorageFailed(problem)))

    def start(self) -> None:
        self._cadences = {"runs": Cadence(self.runs_s), "health": Cadence(self.health_s)}
        self.schedule.start(self._catch_up)
        for sync in (self.runs, self.health):
            self.schedule.add(sync.subject, partial(self._poll, sync))
        self.schedule.add("orphans", self._adopt_orphans)
        for name, work in self.chores.items():
            self.schedule.add(name, partial(self._work_as_poller, work))
        self._listening = asyncio.create_task(self._listen(), name="listening")

    def poll_soon(self, *subjects: Subject) -> None:
        """Poll now because a user asked, but not before a wait that the service stated is over."""
        for subject in subjects:
            if cadence := self._cadences.get(subject):
                self._asked_for.add(subject)
                cadence.due_at_s = 0.0
                self.schedule.run_now(subject)

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        await self.schedule.stop()
        await self._release()

    async def _poll(self, sync: RunSync | HealthSync) -> float:
        subject = sync.subject
        cadence = self._cadences[subject]
        if wait_s := cadence.wait_s(time.monotonic()):
            return wait_s
        await self._hold_lease()
        if not (self.is_poller or subject in self._asked_for):
            return STANDBY_S
        priority = Priority.ASKED if subject in self._asked_for else PRIORITIES[subject]
        if (wait := await self.runs.client.budget.wait(priority)) is not None:
            if subject == "runs" and await self.next_poll() is not None:
                self.runs.announce(PollDelayed())
            return min(max(0.1, wait.until.timestamp() - self.runs.client.budget.now_s()), LOOK_AGAIN_S)
        self._asked_for.discard(subject)
        try:
            await sync.refresh()
        except RateLimitedError as error:
            # A rate limit does not count as a failure of the service.
            cadence.record_refusal(time.monotonic(), error.retry_after_s or 0.0)
        except ApiError as error:
            # The refresh recorded and announced it; only the pace changes here.
            cadence.record_failure(time.monotonic())
            if subject == "runs" and isinstance(error, CANNOT_POLL):
                await self._release(stand_aside_s=STAND_ASIDE_S)
        except StorageError:
            raise
        except Exception as error:
            # Our own bug must not look like a quiet service.
            reason = f"Runwarden could not use the answer ({type(error).__name__}: {error})."
            await sync.record(InternalError(reason))
            raise
        else:
            cadence.record_success(time.monotonic())
        if subject == "runs" and await self.next_poll() is not None:
            self.runs.announce(PollDelayed())
        return cadence.wait_s(time.monotonic())

    async def _adopt_orphans(self) -> float:
        if self.ledger.problem is not None:
            self.runs.announce(StorageFailed(f"The ledger can only be read: {self.ledger.problem}"))
            return READ_ONLY_S
        for action in await self.ledger.adopt_orphans():
            self.runs.announce(ActionChanged(action.action_id))
        return ORPHANS_S

    async def next_poll(self) -> Wait | None:
        """Why the next poll of runs is late, and when it is due; None if it is on time."""
        wait = await self.runs.client.budget.wait(Priority.ACTIVE, max_age_s=POLL_S)
        cadence = self._cadences.get("runs")
        if cadence is None or not self.is_poller:
            return wait
        if wait is None and not cadence.rationed_s and cadence.interval_s <= cadence.base_s:
            return None
        due_at = datetime.fromtimestamp(self.runs.client.budget.now_s() + cadence.wait_s(time.monotonic()), UTC)
        own = Wait("own_pace" if cadence.rationed_s else "service_down", due_at)
        if wait is None:
            return own
        return replace(wait, until=max(wait.until, due_at))

    def _catch_up(self, _jump_s: float) -> None:
        """Poll soon after a suspend or a change of the clock, even if failures had made the interval long."""
        # The lease may have expired, and only its holder polls.
        self._next_claim_s = 0.0
        for subject, cadence in self._cadences.items():
            if cadence.wait_s(time.monotonic()) > cadence.base_s:
                cadence.due_at_s = 0.0
                self.schedule.run_now(subject)

    async def _work_as_poller(self, work: JobWork) -> float:
        await self._hold_lease()
        return await work() if self.is_poller else STANDBY_S

    async def _hold_lease(self) -> None:
        async with self._claiming:
            if time.monotonic() < self._next_claim_s:
                return
            # Without a usable state file, each process polls for itself.
            state, process = self.runs.leases, self.runs.cache.process
            self.is_poller = state is None or await state.acquire_lease(POLLER, process, LEASE_S)
            self._next_claim_s = time.monotonic() + (RENEWAL_S if self.is_poller else 0.0)

    async def _release(self, *, stand_aside_s: float = 0.0) -> None:
        # The lease is not given back during a renewal, which would take it again.
        async with self._claiming:
            self._next_claim_s = time.monotonic() + stand_aside_s
            if self.is_poller:
                self.is_poller = False
                if self.runs.leases is not None:
                    await self.runs.leases.release_lease(POLLER, self.runs.cache.process)

    async def _listen(self) -> None:
        """Ring when another process wrote, and renew the lease."""
        cache, state = self.runs.cache, self.runs.leases
        files = [cache, self.ledger, *([state] if state else [])]
        before: dict[object, int] = {}
        written: dict[object, tuple[object, ...]] = {}
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                if self.is_poller:
                    await self._hold_lease()
                has_new_file = await cache.reopen_if_gone()
                now = dict(before)
                for file in files:
                    at = last_written(file.writer.path)
                    # Asked once more after a change: another write may follow within a tick of the file's clock.
                    if at is None or written.get(file) != (at, at):
                        now[file] = await file.data_version()
                    written[file] = (at, *written.get(file, ())[:1])
                changed = {file for file in before if now[file] != before[file]}
                if has_new_file or changed & {cache, self.ledger}:
                    self.runs.announce(FilesChangedElsewhere())
                if state in changed:
                    self.runs.announce(StateChangedElsewhere())
                before, wait_s = now, ELSEWHERE_S
            except StorageError as error:
                self.runs.announce(StorageFailed(str(error)))
                wait_s = self.runs_s
            except Exception:
                # All failures are caught, as in a job: without this task the screen would freeze unnoticed.
                log.exception("listening broke")
                wait_s = self.runs_s
