"""Filling gaps by parallel windows of time, for a service that filters by creation."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from app.api.errors import (
    ApiError,
    EndlessListError,
    RateLimitedError,
    UnsteadyListError,
)
from app.sync.reader import RunReader
from app.sync.walk import reach
from app.sync.windows import LONGEST, Stretch, Window, Windows
from storage.records import Coverage, CoverageGap, Run, RunPage

PARALLEL: Final = 8
"""Windows requested at a time, unless the service limits it."""
UNSTORED: Final = 4 * PARALLEL
"""Pages waiting to be stored, beyond which nothing more is requested."""
BATCH: Final = 16
"""Pages stored at a time, if that many arrive soon enough."""
LATE_S: Final = 0.25
"""The longest time that a page waits to be stored; a crash loses the pages of this time."""
WIDER: Final = timedelta(seconds=1)
"""Added to both ends of a request: a service may store finer times than it shows."""

Missing = Callable[[], Awaitable[Sequence[CoverageGap]]]
"""The gaps that are missing now, newest first."""


class FilterDoubtError(Exception):
    """The service answered a question about dates with runs of other dates."""


class Pace(Protocol):
    """Decides how far a filling goes, and is told of its progress."""

    parallel: float
    """Requests at a time; halved after a refusal, and slowly raised again."""

    def goes_on(self, coming: int = 0) -> bool:
        """Whether to ask for more while this many runs are on their way."""

    def moved(self, runs: int, coverage: Coverage | None, dropped: int) -> None:
        """Count new runs; take the coverage if it changed, and the number of entries left out."""

    def estimate(self, runs_left: float | None) -> None:
        """Estimate how many runs are left; None: not known."""


@dataclass(frozen=True, slots=True)
class ArrivedPage:
    """A page that came for a window."""

    page: RunPage
    asked_at: datetime
    """When the page was requested, by our clock."""


@dataclass(slots=True)
class WindowFill:
    """Fills gaps by parallel windows of time; after every page is stored, its completed range is recorded."""

    reader: RunReader
    offset: timedelta
    """How much later the service shows its times than it filters them."""
    pace: Pace
    longest: float = LONGEST
    """See `Windows`."""
    _arrived: list[tuple[ArrivedPage, Stretch | None]] = field(default_factory=list)
    """Pages that are not stored yet, in the order of their arrival."""
    _unstored: int = 0
    """Pages that arrived and are not stored, including those being written."""
    _stored_s: float = 0.0
    """Monotonic seconds of the last write."""
    _failure: ApiError | FilterDoubtError | None = None
    _odd: EndlessListError | UnsteadyListError | None = None
    """The error of a window that was given up."""

    async def fill(self, gaps: Sequence[CoverageGap]) -> None:
        """Fetch until nothing is missing, the pace stops it or a request fails; arrived pages are stored.

        Raises:
            FilterDoubtError: The dates cannot be trusted.
            ApiError: The first failure.
        """
        windows = Windows(gaps, page_size=self.reader.page_size, longest=self.longest)
        asked: dict[asyncio.Task[ArrivedPage], Window] = {}
        storing: asyncio.Task[None] | None = None
        try:
            while True:
                self._ask(windows, asked)
                if storing is None and self._is_ripe(alone=not asked):
                    storing = asyncio.create_task(self._store())
                if storing is None and not asked:
                    break
                under_way = {*asked, *([storing] if storing else [])}
                done, _ = await asyncio.wait(under_way, timeout=LATE_S, return_when=asyncio.FIRST_COMPLETED)
                if storing is not None and storing.done():
                    storing.result()
                    storing = None
                for task in [each for each in asked if each in done]:
                    self._take(windows, asked.pop(task), task)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, *([storing] if storing else []), return_exceptions=True)
        if failure := self._failure or self._odd:
            raise failure

    def _is_ripe(self, *, alone: bool) -> bool:
        """Whether to store the arrived pages: many at a time cost less, but none waits for long."""
        is_late = time.monotonic() >= self._stored_s + LATE_S
        return bool(self._arrived) and (len(self._arrived) >= BATCH or is_late or alone)

    def _ask(self, windows: Windows, asked: dict[asyncio.Task[ArrivedPage], Window]) -> None:
        while (
            self._failure is None
            and len(asked) < int(self.pace.parallel)
            and self._unstored < UNSTORED
            and self.pace.goes_on(self.reader.page_size * (len(asked) + self._unstored))
            and (window := windows.take()) is not None
        ):
            stretch, token = window.ask()
            asked[asyncio.create_task(self._page(stretch, token))] = window

    async def _page(self, stretch: Stretch, token: str | None) -> ArrivedPage:
        asked_at = self.reader.clock()
        page = await self.reader.client.list_runs(
            page_size=self.reader.page_size,
            page_token=token,
            date_from=None if stretch.start is None else stretch.start - self.offset - WIDER,
            date_to=stretch.end - self.offset + WIDER,
        )
        if not _fits(page.runs, stretch):
            raise FilterDoubtError
        return ArrivedPage(page, asked_at)

    def _take(self, windows: Windows, window: Window, task: asyncio.Task[ArrivedPage]) -> None:
        try:
            answer = task.result()
            complete = self._advanced(windows, window, answer.page)
        except RateLimitedError as error:
            # Of many parallel requests some get no turn before they give up; a single one fails with the stated wait.
            if self.pace.parallel <= 1:
                self._failure = self._failure or error
            self.pace.parallel = max(1.0, self.pace.parallel / 2)
            window.is_busy = False
            return
        except (ApiError, FilterDoubtError) as error:
            self._failure = self._failure or error
            return
        self.pace.parallel = min(float(PARALLEL), self.pace.parallel + 1 / PARALLEL)
        self._unstored += 1
        self._arrived.append((answer, complete))
        self.pace.estimate(windows.runs_left)

    def _advanced(self, windows: Windows, window: Window, page: RunPage) -> Stretch | None:
        try:
            return windows.advance(window, page, reach(page.runs))
        except (EndlessListError, UnsteadyListError) as error:
            self._odd = error  # The other windows go on to their ends.
            return None

    async def _store(self) -> None:
        batch, self._arrived, self._stored_s = self._arrived, [], time.monotonic()
        runs = [run for answer, _ in batch for run in answer.page.runs]
        # The oldest request counts for all: anything learnt elsewhere since then is newer.
        changes = await self.reader.store(runs, min(answer.asked_at for answer, _ in batch))
        coverage: Coverage | None = None
        for _, complete in batch:
            if complete is not None:
                coverage = await self.reader.cache.extend_coverage(complete.start, complete.end)
        self._unstored -= len(batch)
        self.pace.moved(len(changes.new), coverage, sum(answer.page.dropped for answer, _ in batch))


def _fits(runs: Sequence[Run], stretch: Stretch) -> bool:
    """Whether most of the runs are of the requested time."""
    first = None if stretch.start is None else stretch.start - 2 * WIDER
    last = stretch.end + 2 * WIDER
    odd = sum(
        run.created_at is None or run.created_at > last or (first is not None and run.created_at < first)
        for run in runs
    )
    return 2 * odd <= len(runs)
