"""Filling gaps by windows of creation times, side by side: for a service that filters by creation."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.api.errors import ApiError, RateLimitedError
from app.sync.walk import SECOND, TICK, Order, RunQuery, RunReader, StoredPage, are_within
from storage.records import Coverage, CoverageGap

PARALLEL: Final = 8
"""Windows requested at a time, unless the service limits it."""
LONGEST: Final = 20
"""Pages of a window, by the density of the last page: the newest part of a long gap is filled first."""
DENSE: Final = timedelta(seconds=20)
"""No window is shorter, and the token follows a page that spans less: asking with dates repeats two seconds."""
WIDEST: Final = timedelta(days=1)
"""The largest distance between two runs that the length of a window is computed from."""


@dataclass(slots=True)
class Effort:
    """Decides how far a filling goes, and reports its progress."""

    on_page: Callable[[int, float | None, Coverage | None, int], None]
    may_continue: Callable[[], bool]
    runs_left: float
    """How many more runs may be fetched."""
    parallel: float = PARALLEL
    """Requests at a time; halved after a refusal, and slowly raised again."""
    _left: float | None = None

    def goes_on(self, coming: int = 0) -> bool:
        """Whether to ask for more while this many runs are on their way."""
        return self.runs_left > coming and self.may_continue()

    def moved(self, stored: StoredPage, coverage: Coverage | None) -> None:
        """Count the runs of a page; take the coverage if it changed."""
        self.runs_left -= len(stored.changes.new)
        self.on_page(len(stored.changes.new), self._left, coverage, stored.page.dropped)

    def estimate(self, runs_left: float | None) -> None:
        """Estimate how many runs are left; None: not known."""
        self._left = None if runs_left is None else min(runs_left, self.runs_left)


@dataclass(slots=True, eq=False)
class Window:
    """Creations from start to end, both inclusive, that are asked for page by page."""

    start: datetime | None
    """None: from the very first run."""
    end: datetime
    left: datetime = field(init=False)
    """The end of the missing part."""
    order: Order = field(default_factory=Order)
    token: str | None = None
    """The next page. None: the first one."""

    def __post_init__(self) -> None:
        self.left = self.end

    def rest(self) -> "Window":
        """A missing part, to be requested with its dates."""
        return Window(self.start, self.left)


@dataclass(slots=True)
class WindowFill:
    """Fills gaps; after every page is stored, its completed range is recorded."""

    reader: RunReader
    effort: Effort
    longest: float = LONGEST
    """Pages of a window."""
    is_odd: bool = False
    """Whether some answer was out of order, or not about the dates asked for: it completed nothing."""
    _spacing: timedelta | None = None
    """Time between two runs, by the last page. None: not known."""
    _windows: list[Window] = field(default_factory=list)
    """The missing parts that are not being requested, newest first."""
    _asked: dict[asyncio.Task[None], Window] = field(default_factory=dict)
    _failure: ApiError | None = None

    async def fill(self, gaps: Iterable[CoverageGap]) -> None:
        """Fetch until nothing is missing, the effort ends or a request fails.

        Raises:
            ApiError: The first failure.
        """
        self._windows = [
            Window(None if gap.after is None else gap.after + TICK, gap.before - TICK)
            for gap in gaps
            if gap.before is not None and (gap.after is None or gap.before - gap.after > TICK)
        ]
        try:
            while True:
                while self._failure is None and len(self._asked) < int(self.effort.parallel):
                    coming = self.reader.page_size * len(self._asked)
                    if not self.effort.goes_on(coming) or (window := self._next()) is None:
                        break
                    self._asked[asyncio.create_task(self._ask(window))] = window
                if not self._asked:
                    break
                done, _ = await asyncio.wait(self._asked, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._end(task, self._asked.pop(task))
        finally:
            for task in self._asked:
                task.cancel()
            await asyncio.gather(*self._asked, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def _next(self) -> Window | None:
        """The newest window, or as much of it as one should be long."""
        if not self._windows or (self._spacing is None and self._asked):
            return None  # Nobody knows yet how long a window should be.
        window = self._windows.pop(0)
        if self._spacing is None or window.token is not None or self._is_short(window, self._spacing):
            return window
        cut = window.end - self._length(self._spacing)
        self._windows.insert(0, Window(window.start, cut - TICK))
        return Window(cut, window.end)

    def _is_short(self, window: Window, spacing: timedelta) -> bool:
        return window.start is not None and window.left - window.start <= self._length(spacing)

    def _length(self, spacing: timedelta) -> timedelta:
        """How long a window should be where runs are this far apart."""
        return max(DENSE, spacing * self.longest * self.reader.page_size)

    async def _ask(self, window: Window) -> None:
        """Read the window's next page, and record the range that it completes."""
        since = window.start and window.start - SECOND
        until = window.end + SECOND
        stored = await self.reader.page(RunQuery(since=since, until=until), window.token)
        page, order = stored.page, window.order
        leads_on = page.next_token is None or (page.next_token != window.token and bool(page.runs))
        order.read(page)
        order.is_odd = order.is_odd or not leads_on or not are_within(page.runs, since, until)
        floor = order.floor if page.next_token is not None else window.start
        if not page.runs:
            # Below the very first run, windows of one length would never end: the next one asks for all the rest.
            self._spacing = None
        if order.is_odd:
            # Runs may have been deleted since then: the rest is requested again, if a part of it was in order.
            is_new_try = window.left < window.end
            self.is_odd = self.is_odd or not is_new_try
            self._windows[:0] = [window.rest()] if is_new_try else []
            self.effort.moved(stored, None)
            return
        coverage = None
        if page.next_token is None or (floor is not None and floor <= window.left):
            coverage = await self.reader.cache.extend_coverage(floor, window.left)
        self.effort.moved(stored, coverage)
        if page.next_token is None:
            return
        window.token = page.next_token
        if coverage is not None and floor is not None:
            span, window.left = window.left - floor, floor - TICK
            self._spacing = min(WIDEST, max(TICK, span / max(1, len(page.runs))))
            window = window if span < DENSE or self._is_short(window, self._spacing) else window.rest()
        self._windows.insert(0, window)

    def _end(self, task: asyncio.Task[None], window: Window) -> None:
        try:
            task.result()
        except RateLimitedError as error:
            # Of many parallel requests some get no turn before they give up; a single one fails with the stated wait.
            if self.effort.parallel <= 1:
                self._failure = self._failure or error
            self.effort.parallel = max(1.0, self.effort.parallel / 2)
            self._windows.insert(0, window)
        except ApiError as error:
            self._failure = self._failure or error
        else:
            self.effort.parallel = min(float(PARALLEL), self.effort.parallel + 1 / PARALLEL)
            self.effort.estimate(self._runs_left())

    def _runs_left(self) -> float | None:
        spans = [window.left - window.start for window in (*self._windows, *self._asked.values()) if window.start]
        if self._spacing is None or len(spans) < len(self._windows) + len(self._asked):
            return None
        return sum((span / self._spacing for span in spans), 0.0)
