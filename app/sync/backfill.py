"""History: missing runs are fetched, newest first and once, and old runs are dropped, as the configuration says.

If the service filters by creation, gaps are filled by windows of creation times, side by side.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from app.api.budget import Priority
from app.api.errors import (
    ApiError,
    EndlessListError,
    ForbiddenError,
    NotAuthorizedError,
    RateLimitedError,
    RefusedError,
    ServerFailedError,
)
from app.api.requests import RunQuery
from app.engine.events import Announce, BackfillMoved, RunsChanged
from app.profiles import HistorySettings
from app.sync.runs import RunSync
from app.sync.walk import MICROSECOND, SECOND, Order, RunReader, StoredPage, Walk, are_within
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import Coverage, CoverageGap, RunChanges, RunFilter
from storage.records.coverage import BackfillPhase, BackfillProgress, History
from storage.values import Clock

PARALLEL: Final = 8
"""Windows requested at a time, unless the service limits it."""
MAX_WINDOW_PAGES: Final = 20
"""Pages of a window, by the density of the last page: the newest part of a long gap is filled first."""
MIN_WINDOW: Final = timedelta(seconds=20)
"""No window is shorter, and the token follows a page that spans less: asking with dates repeats two seconds."""
WIDEST: Final = timedelta(days=1)
"""The largest distance between two runs that the length of a window is computed from."""
SLICE_S: Final = 20.0
"""A job fills for this long, then checks whether it should continue."""
LOOK_S: Final = 2.0
"""Seconds between two checks whether it is paused."""
REST_S: Final = 15.0
"""Seconds between two checks for missing history."""
FIRST_WAIT_S: Final = 5.0
MAX_WAIT_S: Final = 300.0
"""The wait after a failure doubles from the first to the longest."""
OLDER_RUNS: Final = 1_000
"""Runs fetched for one request of a user."""
ANNOUNCED_S: Final = 0.25
"""How often progress is announced while runs arrive."""
SHARED_S: Final = 1.0
"""Seconds between two exchanges with other processes: our progress is stored, their requests are read."""
_UNRELATED_TO_PAGE_TOKEN: Final = (NotAuthorizedError, ForbiddenError, RateLimitedError, ServerFailedError)
_EVERY_S: Final = 3600.0
_MEGABYTE: Final = 1_000_000


@dataclass(slots=True, eq=False)
class Window:
    """A range of creation times, both ends inclusive, that is requested page by page."""

    start: datetime | None
    """None stands for the very first run."""
    end: datetime
    left: datetime = field(init=False)
    """The end of the missing part."""
    order: Order = field(default_factory=Order)
    token: str | None = None
    """The next page, or None for the first one."""

    def __post_init__(self) -> None:
        self.left = self.end


@dataclass(slots=True)
class Filling:
    """One filling of gaps: what it fetches, how far, and its windows; after every page its range is recorded."""

    reader: RunReader
    missing: Callable[[], Awaitable[Sequence[CoverageGap]]]
    """The gaps that are missing now, newest first."""
    backfill: "Backfill"
    may_continue: Callable[[], bool]
    runs_left: float
    """How many more runs may be fetched."""
    longest: float = MAX_WINDOW_PAGES
    """Pages of a window."""
    is_odd: bool = False
    """Whether an answer was out of order or outside the requested dates, and so completed nothing."""
    estimate: float | None = None
    """About how many runs are left to fetch, or None if that is unknown."""
    runs: int = 0
    began_s: float = field(default_factory=time.monotonic)
    """Monotonic seconds: the speed is measured from there."""
    _spacing: timedelta | None = None
    """Time between two runs, by the last page, or None if that is unknown."""
    _windows: list[Window] = field(default_factory=list)
    """The missing parts that are not being requested, newest first."""
    _asked: dict[asyncio.Task[None], Window] = field(default_factory=dict)
    _failure: ApiError | None = None

    def goes_on(self, coming: int = 0) -> bool:
        """Whether to request more runs while this many are on their way."""
        return self.runs_left > coming and self.may_continue()

    async def fill_windows(self, gaps: Iterable[CoverageGap]) -> None:
        """Fetch by windows until nothing is missing, no more runs may be fetched or a request fails."""
        self._windows = [
            Window(None if gap.after is None else gap.after + MICROSECOND, gap.before - MICROSECOND)
            for gap in gaps
            if gap.before is not None and (gap.after is None or gap.before - gap.after > MICROSECOND)
        ]
        try:
            while True:
                while self._failure is None and len(self._asked) < int(self.backfill.parallel):
                    coming = self.reader.page_size * len(self._asked)
                    if not self.goes_on(coming) or (window := self._next()) is None:
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
        if not self._windows or (self._spacing is None and self._asked):
            return None  # The right length of a window is not known yet.
        window = self._windows.pop(0)
        if self._spacing is None or window.token is not None or self._is_short(window, self._spacing):
            return window
        cut = window.end - self._length(self._spacing)
        self._windows.insert(0, Window(window.start, cut - MICROSECOND))
        return Window(cut, window.end)

    def _is_short(self, window: Window, spacing: timedelta) -> bool:
        return window.start is not None and window.left - window.start <= self._length(spacing)

    def _length(self, spacing: timedelta) -> timedelta:
        return max(MIN_WINDOW, spacing * self.longest * self.reader.page_size)

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
            self._windows[:0] = [Window(window.start, window.left)] if is_new_try else []
            self.backfill.count_page(self, stored, None)
            return
        coverage = None
        if page.next_token is None or (floor is not None and floor <= window.left):
            coverage = await self.reader.cache.extend_coverage(floor, window.left)
        self.backfill.count_page(self, stored, coverage)
        if page.next_token is None:
            return
        window.token = page.next_token
        if coverage is not None and floor is not None:
            span = window.left - floor
            window.left = floor - MICROSECOND
            self._spacing = min(WIDEST, max(MICROSECOND, span / max(1, len(page.runs))))
            if span >= MIN_WINDOW and not self._is_short(window, self._spacing):
                window = Window(window.start, window.left)  # Requested with its dates, without a token.
        self._windows.insert(0, window)

    def _end(self, task: asyncio.Task[None], window: Window) -> None:
        parallel = self.backfill.parallel
        try:
            task.result()
        except RateLimitedError as error:
            # Some of many parallel requests give up before their turn; a single one fails with the stated wait.
            if parallel <= 1:
                self._failure = self._failure or error
            self.backfill.parallel = max(1.0, parallel / 2)
            self._windows.insert(0, window)
        except ApiError as error:
            self._failure = self._failure or error
        else:
            self.backfill.parallel = min(float(PARALLEL), parallel + 1 / PARALLEL)
            spans = [window.left - window.start for window in (*self._windows, *self._asked.values()) if window.start]
            is_known = len(spans) == len(self._windows) + len(self._asked)
            left = None
            if self._spacing and is_known:
                left = sum(spans, timedelta(0)) / self._spacing
            self.estimate = None if left is None else min(left, self.runs_left)


class Backfill:
    """Fetches missing history, as far as the configuration or a user asks."""

    def __init__(self, runs: RunSync, settings: HistorySettings) -> None:
        self.progress = BackfillProgress()
        self.parallel = float(PARALLEL)
        """Requests at a time; halved after a refusal, and slowly raised again."""
        self._runs = runs
        self._announce = runs.announce
        self._in_background = replace(runs.reader, client=runs.client.at(Priority.BACKFILL))
        self._on_demand = replace(runs.reader, client=runs.client.at(Priority.ASKED))
        self._cache = runs.cache
        self._settings = settings
        self._odd: list[CoverageGap] = []
        """Gaps that were asked for and whose runs are out of order: only a user has them asked for again."""
        self._is_paused = False
        self._turn = asyncio.Lock()
        self._asked_for = 0
        """The number of fillings that a user waits for; while there are any, the background filling pauses."""
        self._wait_s = FIRST_WAIT_S
        self._announced_s = -math.inf

    # Background backfill

    async def work(self) -> float:
        """Fill for a while; return the seconds until the next time, longer after each failure."""
        history = await self._cache.history(self._runs.clock())
        if not history.coverage.ranges and not history.is_unread:
            return LOOK_S  # Before the first refresh has finished, no gaps are known.
        self._is_paused = history.is_paused
        if self._is_paused:
            self._enter("paused")
            return LOOK_S
        try:
            done = await self.run(for_s=SLICE_S)
        except ApiError as error:
            wait_s = error.retry_after_s if isinstance(error, RateLimitedError) else None
            if wait_s is None:
                wait_s = self._wait_s
                self._wait_s = min(MAX_WAIT_S, 2 * self._wait_s)
            self._enter("waiting", until=self._runs.clock() + timedelta(seconds=wait_s), reason=error.kind)
            await self._cache.store_progress(self.progress)
            return wait_s
        self._wait_s = FIRST_WAIT_S
        if done:
            return REST_S
        return LOOK_S if self._asked_for else 0.0

    async def run(self, *, for_s: float = math.inf, days: float | None = None, is_asked: bool = False) -> bool:
        """Fill the gaps of the configured history, or of this many days; return whether none is left.

        `is_asked`: a user waits, so a pause is ignored and requests have the user's priority.
        """
        end_s = time.monotonic() + for_s

        async def missing() -> Sequence[CoverageGap]:
            history = await self._cache.history(self._runs.clock())
            gaps = missing_gaps(history, self._floor(history, days))
            if is_asked:
                return gaps
            return [gap for gap in gaps if not any(gap.overlaps(odd) for odd in self._odd)]

        async with self._turn:
            is_done = not await missing()
            if not is_done:
                filling = Filling(
                    self._on_demand if is_asked else self._in_background,
                    missing,
                    self,
                    lambda: (is_asked or not self._is_paused) and not self._asked_for and time.monotonic() < end_s,
                    self._settings.runs - await self._cache.count(RunFilter()) if days is None else math.inf,
                )
                async with self._share_progress(hears_pause=not is_asked):
                    await self._fill(filling)
                is_done = filling.runs_left <= 0 or not await missing()
            phase: BackfillPhase = "done" if is_done else "running"
            if self._enter("paused" if self._is_paused else phase):
                await self._cache.store_progress(self.progress)
            return is_done

    async def pause(self, *, is_paused: bool) -> None:
        """Pause the backfill in every process with this cache, or resume it."""
        self._is_paused = is_paused
        await self._cache.pause_backfill(paused=is_paused)
        self._enter("paused" if is_paused else "idle")

    # On demand

    async def fetch_older(self, *, since: datetime | None = None, gap: CoverageGap | None = None) -> bool:
        """Fetch missing runs: all since a time; by default the next thousand.

        `gap`: only those of this gap. It may be cancelled at any time: fetched runs are kept. Returns whether it
        brought a run or made a gap smaller: otherwise the service has no more.
        """

        async def missing() -> Sequence[CoverageGap]:
            gaps = missing_gaps(await self._cache.history(self._runs.clock()), since)
            return [other for other in gaps if gap is None or gap.overlaps(other)]

        most, pages = math.inf, float(MAX_WINDOW_PAGES)
        if since is None:
            most = OLDER_RUNS
            pages = OLDER_RUNS / self._runs.reader.page_size / PARALLEL
        before = await self._cache.coverage(), await self._cache.count(RunFilter())
        self._asked_for += 1
        try:
            async with self._turn, self._share_progress():
                await self._fill(Filling(self._on_demand, missing, self, lambda: True, most, max(1.0, pages)))
            return (await self._cache.coverage(), await self._cache.count(RunFilter())) != before
        finally:
            self._asked_for -= 1
            self._enter("idle")

    def _floor(self, history: History, days: float | None) -> datetime | None:
        """The creation time down to which history is wanted, by the service's own times."""
        ranges = history.coverage.ranges
        newest = ranges[0].end if ranges else None
        if newest is None or days is not None:
            if newest is None or days is None:
                return None
            return newest - timedelta(days=days)
        # Runs that were dropped to make room are fetched again only for a user.
        dropped = history.dropped_until
        floor = newest - timedelta(days=self._settings.days)
        return floor if dropped is None else max(floor, dropped + MICROSECOND)

    async def _fill(self, filling: Filling) -> None:
        gaps = await filling.missing()
        if not gaps or not filling.goes_on():
            return
        if gaps[0].before is not None and await self._runs.filters_by_creation():
            await filling.fill_windows(gaps)
            if not filling.is_odd:
                return
            self._runs.dates_are_proven = False  # These claims have to be proven again before use.
        while (gaps := await filling.missing()) and filling.goes_on():
            if not await self._walk(filling, gaps[0].before):
                self._odd += await filling.missing()
                return

    async def _walk(self, filling: Filling, before: datetime | None) -> bool:
        """Fill gaps by a walk down the list, from the place that an earlier one left; return whether it came further.

        Without such a position a walk begins at the newest run. A list out of order is still read to its end.
        """
        place = await self._cache.place(before)
        if place is None or (before is None and not (await self._cache.coverage()).is_disordered):
            return await self._walk_from_top(filling)
        order = Order(before, place.total, pages=1)
        try:
            async for stored in filling.reader.read(token=place.token):
                if order.pages == 1 and before is not None:
                    # Runs of one instant that change places: another of them may have been passed over.
                    cached = (run for run in stored.page.runs if run.run_id not in stored.changes.new)
                    order.is_odd |= any(run.created_at == before - MICROSECOND for run in cached)
                order.read(stored.page)
                following, floor = stored.page.next_token, order.floor
                coverage: Coverage | None = None
                if before is None:
                    await self._cache.store_place(None, following)
                elif order.is_odd:
                    await self._cache.store_place(before, None)
                    return True  # This walk starts from the newest run.
                elif following is None or (floor is not None and floor < before):
                    start = None if following is None else floor
                    coverage = await self._cache.extend_coverage(start, before - MICROSECOND)
                    await self._cache.store_place(start, following, order.total)
                self.count_page(filling, stored, coverage)
                if not await filling.missing() or not filling.goes_on():
                    return True
        except (RefusedError, EndlessListError) as error:
            if isinstance(error, _UNRELATED_TO_PAGE_TOKEN):
                raise
            # The token has expired or leads back to earlier pages.
            await self._cache.store_place(before, None)
            return before is not None
        return True

    async def _walk_from_top(self, filling: Filling) -> bool:
        walk = Walk(self._runs.clock(), None)
        before = await filling.missing()
        try:
            async for stored in filling.reader.read():
                await self._runs.claim(walk, stored)
                self.count_page(filling, stored, await self._cache.coverage())
                # A walk cannot be continued within a known range, so the time for it does not matter.
                if not await filling.missing() or filling.runs_left <= 0 or self._is_paused:
                    return True
        except EndlessListError:
            await self._cache.store_place(None, None)
            raise
        return not walk.order.is_odd and before != await filling.missing()

    def count_page(self, filling: Filling, stored: StoredPage, coverage: Coverage | None) -> None:
        """Count the runs of a page, and announce the progress, with the coverage if it changed."""
        new = len(stored.changes.new)
        filling.runs += new
        filling.runs_left -= new
        left = filling.estimate
        done = self.progress.done_runs + new
        speed = filling.runs / max(time.monotonic() - filling.began_s, 1e-3)
        self.progress = replace(
            self.progress,
            phase="running",
            done_runs=done,
            dropped=self.progress.dropped + stored.page.dropped,
            estimated_runs=None if left is None else done + round(left),
            seconds_left=None if left is None or not speed else left / speed,
            oldest=coverage.complete_since if coverage else self.progress.oldest,
            until=None,
            why="",
        )
        if time.monotonic() >= self._announced_s + ANNOUNCED_S:
            self._announced_s = time.monotonic()
            self._announce(BackfillMoved(self.progress))

    def _enter(self, phase: BackfillPhase, *, until: datetime | None = None, reason: str = "") -> bool:
        """Announce a phase, its expected end and its reason; return whether the phase is a new one."""
        before = self.progress
        entered = replace(self.progress, phase=phase, until=until, why=reason)
        if entered != before:
            self.progress = entered
            self._announce(BackfillMoved(entered))
        return entered.phase != before.phase

    @asynccontextmanager
    async def _share_progress(self, *, hears_pause: bool = False) -> AsyncIterator[None]:
        """Store the progress every second while the body runs, and notice a pause by another process."""

        async def share() -> None:
            while True:
                await asyncio.sleep(SHARED_S)
                await self._cache.store_progress(self.progress)
                if hears_pause and not self._is_paused:
                    self._is_paused = (await self._cache.history(self._runs.clock())).is_paused

        sharing = asyncio.create_task(share())
        try:
            yield
        finally:
            sharing.cancel()
            await asyncio.gather(sharing, return_exceptions=True)


def missing_gaps(history: History, floor: datetime | None) -> Sequence[CoverageGap]:
    if history.is_unread:
        return (CoverageGap(None, None),)  # The list continues, but its order proves nothing.
    if floor is None:
        return history.coverage.gaps
    return [
        CoverageGap(floor - MICROSECOND if gap.after is None else max(gap.after, floor - MICROSECOND), gap.before)
        for gap in history.coverage.gaps
        if gap.before is not None and gap.before > floor
    ]


async def drop_old_runs(
    cache: Cache, ledger: Ledger, announce: Announce, history: HistorySettings, clock: Clock
) -> float:
    """Drop the oldest runs of a cache that has grown too old or too large; return the seconds until the next check."""
    needed = await ledger.run_ids()
    dropped = 0
    if history.keep_days:
        before = clock() - timedelta(days=history.keep_days)
        while count := await cache.drop_oldest(before, needed):
            dropped += count
    while history.max_mb and await cache.used_bytes() > history.max_mb * _MEGABYTE:
        count = await cache.drop_oldest(None, needed)
        dropped += count
        if not count:
            break  # Only active and followed runs and those in the ledger are left.
        await asyncio.sleep(0)
    if dropped:
        announce(RunsChanged(RunChanges(dropped=dropped)))
    return _EVERY_S
