"""The report of the backfill: its progress, announced here and shared with other processes."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Final

from app.events import Announce, BackfillMoved
from storage.cache import Cache
from storage.records import Coverage
from storage.records.backfill import BackfillPhase, BackfillProgress

ANNOUNCED_S: Final = 0.25
"""How often progress is announced while runs arrive."""
SHARED_S: Final = 1.0
"""Seconds between two exchanges with other processes: our progress is stored, their requests are read."""


class BackfillReport:
    """Reports one process's backfill."""

    def __init__(self, cache: Cache, announce: Announce, clock: Callable[[], datetime]) -> None:
        self.progress = BackfillProgress()
        self._cache = cache
        self._announce = announce
        self._clock = clock
        self._began = (0.0, 0)
        """Monotonic seconds, and the runs done by then: the speed is measured from there."""
        self._announced_s = -math.inf

    def begin(self) -> None:
        """Start to measure the speed."""
        self._began = (time.monotonic(), self.progress.done_runs)

    def came(self, runs: int, left: float | None, coverage: Coverage | None, dropped: int) -> None:
        """Report new runs, about how many are left, the coverage if it changed, and entries left out."""
        began_s, before = self._began
        done = self.progress.done_runs + runs
        speed = (done - before) / max(time.monotonic() - began_s, 1e-3)
        self.progress = replace(
            self.progress,
            phase="running",
            done_runs=done,
            dropped=self.progress.dropped + dropped,
            estimated_runs=None if left is None else done + round(left),
            seconds_left=None if left is None or not speed else left / speed,
            oldest=coverage.complete_since if coverage else self.progress.oldest,
            until=None,
            why="",
        )
        if time.monotonic() >= self._announced_s + ANNOUNCED_S:
            self._announced_s = time.monotonic()
            self._announce(BackfillMoved(self.progress))

    def enter(self, phase: BackfillPhase, *, until: datetime | None = None, why: str = "") -> bool:
        """Announce a phase, its end and its reason; return whether the phase is a new one."""
        before, entered = self.progress, replace(self.progress, phase=phase, until=until, why=why)
        if entered != before:
            self.progress = entered
            self._announce(BackfillMoved(entered))
        return entered.phase != before.phase

    async def keep(self) -> None:
        """Store the progress for other processes."""
        await self._cache.keep_progress(self.progress, self._clock())

    @asynccontextmanager
    async def shared(self, hear: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[None]:
        """Store the progress every second while the body runs, and call `hear` for other processes' requests."""

        async def share() -> None:
            while True:
                await asyncio.sleep(SHARED_S)
                await self.keep()
                if hear is not None:
                    await hear()

        sharing = asyncio.create_task(share())
        try:
            yield
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)
