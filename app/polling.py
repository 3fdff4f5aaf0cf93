"""Polling: what is polled when, and by which of the processes that share a data folder."""

import os
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from app.api.errors import ApiError, RateLimitedError
from app.events import Announce, CacheChangedElsewhere, StorageFailed
from app.schedule import Job, Schedule
from app.sync import HealthSync, RunSync
from app.sync.polls import Cadence
from storage.cache import Cache
from storage.errors import StorageError
from storage.lease import Lease
from storage.ledger import Ledger
from storage.records.activity import Subject

LEASE_NAME: Final = "poller"
DOORBELL_S: Final = 1.0
"""How soon another process's write is noticed."""
STANDBY_S: Final = 3.0
"""How often a process without the lease checks whether it may poll."""
LEASE_S: Final = 15.0
"""How long a poller that died keeps the others waiting."""
RENEWAL_S: Final = LEASE_S / 3
DEADLINE_S: Final = 300.0
"""A whole refresh, many requests long; each request has its own, much shorter deadline."""


@dataclass(slots=True)
class Polling:
    """Polls runs and health while this process holds the lease, and listens for others when it does not."""

    runs: RunSync
    health: HealthSync
    cache: Cache
    ledger: Ledger
    lease: Lease
    announce: Announce
    runs_s: float
    """Seconds between polls of runs while all is well."""
    health_s: float
    is_poller: bool = False
    """Whether this process holds the lease."""
    _schedule: Schedule = field(default_factory=Schedule)
    _cadences: dict[Subject, Cadence] = field(default_factory=dict)
    _asked_for: set[Subject] = field(default_factory=set)
    """Polls that a person asked for: carried out with or without the lease."""
    _owner: str = field(default_factory=lambda: f"{os.getpid()}-{uuid.uuid4().hex[:8]}")
    _versions: tuple[int, int] | None = None
    _renew_at_s: float = 0.0
    """Monotonic seconds."""

    def start(self) -> None:
        """Begin to poll, at once."""
        self._cadences = {"runs": Cadence(self.runs_s), "health": Cadence(self.health_s)}
        self._schedule.start()
        self._add("runs", lambda: self._poll("runs", self.runs.refresh), DEADLINE_S)
        self._add("health", lambda: self._poll("health", self.health.refresh), DEADLINE_S)
        self._add("doorbell", self._listen, DEADLINE_S)

    def poll_soon(self, subject: Subject) -> None:
        """Poll now, because a person asked; a wait that the service stated still holds."""
        if cadence := self._cadences.get(subject):
            self._asked_for.add(subject)
            cadence.hasten()
            self._schedule.run_now(subject)

    async def stop(self) -> None:
        """End polling and give the lease back."""
        await self._schedule.stop()
        if self.is_poller:
            self.is_poller = False
            await self.lease.release(LEASE_NAME, self._owner)

    def _add(self, name: str, work: Callable[[], Awaitable[float]], deadline_s: float) -> None:
        async def guarded() -> float:
            try:
                return await work()
            except StorageError as error:
                self.announce(StorageFailed(str(error)))
                raise

        self._schedule.add(Job(name, guarded, deadline_s, after_crash_s=max(self.runs_s, DOORBELL_S)))

    async def _poll(self, subject: Subject, refresh: Callable[[], Awaitable[object]]) -> float:
        cadence = self._cadences[subject]
        if wait_s := cadence.wait_s(time.monotonic()):
            return wait_s
        if not await self._may_poll(subject):
            return STANDBY_S
        try:
            await refresh()
        except RateLimitedError as error:
            cadence.failed(time.monotonic(), retry_after_s=error.retry_after_s)
        except ApiError:
            # The refresh recorded it and rang the doorbell; here only the pace changes.
            cadence.failed(time.monotonic())
        else:
            cadence.succeeded(time.monotonic())
        return cadence.wait_s(time.monotonic())

    async def _may_poll(self, subject: Subject) -> bool:
        asked = subject in self._asked_for
        self._asked_for.discard(subject)
        await self._hold_lease()
        return self.is_poller or asked

    async def _hold_lease(self) -> None:
        if time.monotonic() < self._renew_at_s:
            return
        self.is_poller = await self.lease.acquire(LEASE_NAME, self._owner, LEASE_S)
        self._renew_at_s = time.monotonic() + (RENEWAL_S if self.is_poller else 0.0)

    async def _listen(self) -> float:
        if self.is_poller:
            await self._hold_lease()
        versions = (await self.cache.data_version(), await self.ledger.data_version())
        if self._versions is not None and versions != self._versions:
            self.announce(CacheChangedElsewhere())
        self._versions = versions
        return DOORBELL_S
