"""Backfill: missing history, fetched newest first and in parallel; fetched runs are never asked for again."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from app.api.budget import Priority
from app.api.client import Client
from app.api.errors import ApiError, EndlessListError, RateLimitedError
from app.config import HistorySettings
from app.events import Announce
from app.sync.backfill_report import BackfillReport
from app.sync.fill import PARALLEL, FilterDoubtError, Missing, WindowFill
from app.sync.list_fill import ListFill
from app.sync.reader import RunReader
from app.sync.runs import RunSync
from app.sync.walk import TICK
from app.sync.windows import LONGEST
from storage.records import Coverage, CoverageGap, RunFilter
from storage.records.backfill import BackfillProgress

SLICE_S: Final = 20.0
"""A job fills for this long, then checks whether it should continue."""
LOOK_S: Final = 2.0
"""Seconds between two checks for a pause or its end."""
REST_S: Final = 5.0
"""Seconds between two checks for missing history."""
FIRST_WAIT_S: Final = 5.0
LONGEST_WAIT_S: Final = 300.0
"""The wait after a failure doubles from the first to the longest."""
OLDER_RUNS: Final = 1_000
"""Runs fetched for one request of a user."""


@dataclass(slots=True)
class _Effort:
    """The limits of one filling: the `Pace` of `app.sync.fill`."""

    came: Callable[[int, float | None, Coverage | None, int], None]
    may_go_on: Callable[[], bool]
    room: float
    """Runs until the limit."""
    parallel: float = PARALLEL
    _left: float | None = None

    def goes_on(self, coming: int = 0) -> bool:
        """Whether to ask for more while this many runs are on their way."""
        return self.room > coming and self.may_go_on()

    def moved(self, runs: int, coverage: Coverage | None, dropped: int) -> None:
        """Count new runs; take the coverage if it changed, and the number of entries left out."""
        self.room -= runs
        self.came(runs, self._left, coverage, dropped)

    def estimate(self, runs_left: float | None) -> None:
        """Estimate how many runs are left; None: not known."""
        self._left = None if runs_left is None else min(runs_left, self.room)


class Backfill:
    """Fetches missing history, as far as the configuration or a user asks."""

    def __init__(self, runs: RunSync, client: Client, announce: Announce, history: HistorySettings) -> None:
        self._runs = runs
        self.report: Final = BackfillReport(runs.cache, announce, runs.clock)
        self._in_background = replace(runs.reader, client=client.at(Priority.BACKFILL))
        self._on_demand = replace(runs.reader, client=client.at(Priority.ASKED))
        self._cache = runs.cache
        self._history = history
        self._parallel = float(PARALLEL)
        self._is_paused = False
        self._turn = asyncio.Lock()
        self._asked_for = 0
        """The number of fillings that a user waits for; while there are any, the background filling pauses."""
        self._wait_s = FIRST_WAIT_S

    @property
    def progress(self) -> BackfillProgress:
        """The progress of this process's backfill."""
        return self.report.progress

    # In the background.

    async def work(self) -> float:
        """Fill for a while; return the seconds until the next time, longer after each failure."""
        if not (await self._cache.coverage()).ranges and not await self._cache.is_unread():
            return LOOK_S  # Before the first refresh has ended there is nothing to begin with.
        self._is_paused = await self._cache.backfill_paused()
        if self._is_paused:
            self.report.enter("paused")
            return LOOK_S
        try:
            done = await self.run(for_s=SLICE_S)
        except ApiError as error:
            wait_s = self._wait(error)
            await self.report.keep()
            return wait_s
        self._wait_s = FIRST_WAIT_S
        return REST_S if done else LOOK_S if self._asked_for else 0.0

    async def run(self, *, for_s: float = math.inf, days: float | None = None, is_asked: bool = False) -> bool:
        """Fill what is missing of the configured history, or of this many days; return whether nothing is left.

        `is_asked`: a user waits, so a pause is ignored and requests have the user's priority.

        Raises:
            ApiError: A request failed; runs before it are kept.
        """
        end_s = time.monotonic() + for_s

        async def missing() -> Sequence[CoverageGap]:
            return await self._missing(await self._floor(days), in_background=not is_asked)

        async with self._turn:
            if not await missing():
                return await self._ended(is_done=True)
            room = self._history.runs - await self._cache.count(RunFilter()) if days is None else math.inf
            effort = self._effort(
                room,
                lambda: (is_asked or not self._is_paused) and not self._asked_for and time.monotonic() < end_s,
            )
            reader = self._on_demand if is_asked else self._in_background
            async with self.report.shared(None if is_asked else self._hear_pause):
                await self._fill(reader, missing, effort, LONGEST)
            return await self._ended(is_done=effort.room <= 0 or not await missing())

    async def _ended(self, *, is_done: bool) -> bool:
        if self.report.enter("paused" if self._is_paused else "done" if is_done else "running"):
            await self.report.keep()
        return is_done

    async def pause(self) -> None:
        """Ask for nothing more until `resume`, in every process with this cache."""
        self._is_paused = True
        await self._cache.pause_backfill(paused=True)
        self.report.enter("paused")

    async def resume(self) -> None:
        """Go on after a pause."""
        self._is_paused = False
        await self._cache.pause_backfill(paused=False)
        self.report.enter("idle")

    # On demand.

    async def fetch_older(
        self, *, since: datetime | None = None, run_id: str | None = None, gap: CoverageGap | None = None
    ) -> None:
        """Fetch missing runs: all since a time, or until one run is here; else the next thousand.

        `gap`: only those of this gap. It may be cancelled at any time: fetched runs are kept.

        Raises:
            ApiError: A request failed; runs before it are kept.
        """

        async def missing() -> Sequence[CoverageGap]:
            return [each for each in await self._missing(since) if gap is None or gap.overlaps(each)]

        most, longest = (
            (math.inf, LONGEST) if since else (OLDER_RUNS, OLDER_RUNS / self._runs.reader.page_size / PARALLEL)
        )
        self._asked_for += 1
        try:
            async with self._turn:
                left: Sequence[CoverageGap] | None = None
                while left != (left := await missing()):
                    async with self.report.shared():
                        await self._fill(self._on_demand, missing, self._effort(most, lambda: True), max(1.0, longest))
                    if run_id is None or await self._cache.detail(run_id):
                        return
        finally:
            self._asked_for -= 1
            self.report.enter("idle")

    async def _hear_pause(self) -> None:
        self._is_paused = self._is_paused or await self._cache.backfill_paused()

    async def _fill(self, reader: RunReader, missing: Missing, effort: _Effort, longest: float) -> None:
        gaps = await missing()
        if not gaps or not effort.goes_on():
            return
        traits = await self._runs.service_traits()
        try:
            if traits.date_filter == "created" and gaps[0].before is not None:
                await WindowFill(reader, traits.display_offset, effort, longest).fill(gaps)
                return
        except FilterDoubtError:
            await self._cache.set_traits(replace(traits, date_filter="unknown"))
        finally:
            self._parallel = effort.parallel
        try:
            await ListFill(self._runs, reader, effort, missing).fill()
        except EndlessListError:
            if await self._cache.is_unread():
                await self._cache.note_habit("endless", self._runs.clock())
            raise

    async def _floor(self, days: float | None) -> datetime | None:
        """The creation time down to which history is wanted, by the service's own times."""
        ranges = (await self._cache.coverage()).ranges
        newest = ranges[0].end if ranges else None
        if newest is None or days is not None:
            return None if newest is None or days is None else newest - timedelta(days=days)
        # Runs that were dropped to make room are fetched again only for a user.
        dropped, floor = await self._cache.dropped_until(), newest - timedelta(days=self._history.days)
        return floor if dropped is None else max(floor, dropped + TICK)

    async def _missing(self, floor: datetime | None, *, in_background: bool = False) -> Sequence[CoverageGap]:
        coverage = await self._cache.coverage()
        if await self._cache.is_unread():
            if in_background and await self._cache.has_habit("endless", self._runs.clock()):
                return ()  # The list was read to its end.
            return (CoverageGap(None, None),)  # The list goes on, and its times cannot be read.
        if floor is None:
            return coverage.gaps
        return [
            CoverageGap(floor - TICK if gap.after is None else max(gap.after, floor - TICK), gap.before)
            for gap in coverage.gaps
            if gap.before is not None and gap.before > floor
        ]

    def _effort(self, room: float, may_go_on: Callable[[], bool]) -> _Effort:
        self.report.begin()
        return _Effort(self.report.came, may_go_on, room, self._parallel)

    def _wait(self, error: ApiError) -> float:
        wait_s = error.retry_after_s if isinstance(error, RateLimitedError) else None
        if wait_s is None:
            wait_s, self._wait_s = self._wait_s, min(LONGEST_WAIT_S, 2 * self._wait_s)
        self.report.enter("waiting", until=self._runs.clock() + timedelta(seconds=wait_s), why=error.kind)
        return wait_s
