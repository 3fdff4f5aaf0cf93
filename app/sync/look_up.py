"""Looks for runs that no list showed. A run counts as absent only if the same request finds one that is there.

A service may filter dates by creation, by the last change or not at all, store finer times than it shows, and show
local times without an offset (spec 4.2 leaves all of that open).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median_low
from typing import Final, Literal

from app.api.errors import EndlessListError
from app.sync.reader import RunQuery, RunReader
from storage.records import FINAL_STATUSES, DateFilter, Run, ServiceTraits

LookUpVerdict = Literal["found", "absent", "unknown"]

SECOND: Final = timedelta(seconds=1)
QUARTER: Final = timedelta(minutes=15)
"""Every offset from UTC is a multiple of this."""
FURTHEST: Final = 14 * 4
"""The largest offset from UTC in quarters of an hour."""
APART: Final = timedelta(seconds=5)
"""Creation and last change of a run this far apart tell which of them the service filters."""
LONGEST: Final = timedelta(days=7)
"""An older active run may have been continued, or have an odd creation time."""
WINDOW_PAGES: Final = 5
WALK_PAGES: Final = 10
"""Pages read for one request; what they leave open stays unknown."""
BLIND_TRIES: Final = 3
"""Runs looked for while the date filter is unknown."""
LOOK_UPS: Final = 25
"""Runs requested one by one at a time; the others have to wait."""
TOGETHER: Final = 4
"""From this number on runs are looked for in one window first."""
RECENT: Final = timedelta(minutes=10)
"""A change between two looks no further apart has a time at most this old."""
CHANGES: Final = 3
"""The number of changes that together show that the service's times have moved."""
REST: Final = timedelta(hours=1)
"""The wait before a service with an unclear date filter is examined again."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Times by the service's own clock, both inclusive."""

    start: datetime
    end: datetime | None = None

    @classmethod
    def around(cls, shown: datetime, offset: timedelta) -> "TimeRange":
        """The times that a shown time may mean: a service may show whole seconds and store microseconds."""
        at = (shown - offset).replace(microsecond=0)
        return cls(at - SECOND, at + 2 * SECOND)

    def holds(self, shown: datetime | None, offset: timedelta) -> bool:
        """Whether a shown time lies in the range; True for a time that cannot be read."""
        return shown is None or self.start <= shown - offset <= (self.end or shown - offset)


@dataclass(frozen=True, slots=True)
class LookUpAnswer:
    """The runs that a look-up was answered with."""

    runs: tuple[Run, ...]
    ended: bool
    """Whether the list was read to its end and every entry could be read."""

    def has(self, run: Run) -> bool:
        """Whether the answer contains the run."""
        return any(shown.run_id == run.run_id for shown in self.runs)


@dataclass(slots=True)
class LookUp:
    """Looks for single runs, and finds out how the service filters dates."""

    reader: RunReader
    _examine_at: datetime | None = None
    """The earliest next examination, after one without a clear result."""
    _possible: tuple[DateFilter, ...] = ()
    """The filters that the last examination left open."""
    _looked_at: datetime | None = None
    """When `check_offset` was called last."""
    _lags: deque[timedelta] = field(default_factory=lambda: deque(maxlen=5))
    """How far the shown times of the last changes are from when they were observed."""
    _doubted_at: datetime | None = None
    """When the lags last showed that the service's times have moved."""

    async def traits(self) -> ServiceTraits:
        """The service's habits; if they are not known, a few requests may find them out.

        Raises:
            ApiError: The service could not be asked.
        """
        await self._filters(None)
        return await self.reader.cache.traits()

    async def check_offset(self, changed: Sequence[Run], shown: Sequence[Run], ahead: timedelta | None) -> None:
        """Examine the service's habits again if runs that just changed show times of long ago, or in the future.

        Local times without an offset move when summer time begins and ends. `ahead`: the service's clock, by `Date`.

        Raises:
            ApiError: The service could not be asked.
        """
        now, last = self.reader.clock(), self._looked_at
        self._looked_at = now
        traits = await self.reader.cache.traits()
        if last is None or ahead is None or now - last > RECENT or traits.date_filter in {"unknown", "ignored"}:
            return
        present = now + ahead + traits.display_offset
        self._lags.extend(run.updated_at - present for run in changed if run.updated_at is not None)
        is_rest_over = self._doubted_at is None or now >= self._doubted_at + REST
        if len(self._lags) >= CHANGES and abs(median_low(self._lags)) > RECENT and is_rest_over:
            self._lags.clear()
            self._doubted_at = now
            await self._examine(shown, traits.display_offset)

    async def find(self, runs: Sequence[Run], controls: Sequence[Run] | None) -> Mapping[str, LookUpVerdict]:
        """Look for these runs; `controls` are others that the service has just shown (None: they are requested).

        Raises:
            ApiError: The service could not be asked; what was found before is stored.
        """
        controls = await self._newest() if controls is None else controls
        filters, is_proved = await self._filters(controls)
        offset = (await self.reader.cache.traits()).display_offset
        verdicts = await self._search(runs, filters, offset)
        if is_proved or filters in {(), ("ignored",)} or "absent" not in verdicts.values():
            return verdicts
        shown = _controls(controls)
        fits = await self._fits(shown[0], filters[0], offset) if shown else ()
        if not any(name in filters for name in fits):
            await self.reader.cache.set_traits(ServiceTraits("unknown", offset))
            self._examine_at = None
            return {run_id: "unknown" if said == "absent" else said for run_id, said in verdicts.items()}
        return verdicts

    async def _newest(self) -> tuple[Run, ...]:
        return (await self._walk(None, [], 1)).runs

    async def _filters(self, controls: Sequence[Run] | None) -> tuple[tuple[DateFilter, ...], bool]:
        """The possible date filters (empty: none fits), and whether that was found out just now."""
        known, now = await self.reader.cache.traits(), self.reader.clock()
        if known.date_filter != "unknown":
            return (known.date_filter,), False
        if self._examine_at is not None and now < self._examine_at:
            return self._possible, False
        shown = await self._newest() if controls is None else controls
        self._possible = await self._examine(shown, known.display_offset)
        self._examine_at = now + REST
        return self._possible, True

    async def _search(
        self, runs: Sequence[Run], filters: tuple[DateFilter, ...], offset: timedelta
    ) -> dict[str, LookUpVerdict]:
        """Search by each possible filter; a run that none of them finds is absent. Some of many may be left out."""
        verdicts: dict[str, LookUpVerdict] = {run.run_id: "absent" if filters else "unknown" for run in runs}
        if "created" in filters:
            verdicts |= dict.fromkeys((run.run_id for run in runs if not _is_plausible(run)), "unknown")
        if "created" in filters or not filters:
            alone = await self._together(verdicts, runs, offset) if filters else runs
            most = LOOK_UPS if filters else BLIND_TRIES
            for run in alone[:most]:
                self._settle(verdicts, [run], await self._by_creation(run, offset))
            if filters:
                runs = [run for run in runs if run not in alone[most:]]
                verdicts = {run.run_id: verdicts[run.run_id] for run in runs}
        left = [run for run in runs if verdicts[run.run_id] != "found"]
        if left and "updated" in filters:
            times = [run.updated_at for run in left if run.updated_at is not None]
            since = TimeRange(min(times) - offset - SECOND) if len(times) == len(left) else None
            self._settle(verdicts, left, await self._walk(since, left, WALK_PAGES))
        elif left and ("ignored" in filters or not filters):
            verdicts |= await self._in_the_list(left)
        return verdicts

    async def _together(
        self, verdicts: dict[str, LookUpVerdict], runs: Sequence[Run], offset: timedelta
    ) -> Sequence[Run]:
        """Look for the runs in one window over all of them; return those to request one by one."""
        times = [run.created_at for run in runs if run.created_at is not None and _is_plausible(run)]
        if len(times) < TOGETHER:
            return runs
        span = TimeRange(TimeRange.around(min(times), offset).start, TimeRange.around(max(times), offset).end)
        answer = await self._walk(span, runs, len(times) // 2)
        if answer.ended:
            self._settle(verdicts, runs, answer)
            return ()
        for run in (found := [run for run in runs if answer.has(run)]):
            verdicts[run.run_id] = "found"
        return [run for run in runs if run not in found]

    async def _in_the_list(self, runs: Sequence[Run]) -> dict[str, LookUpVerdict]:
        """Whether the whole list has them, read twice: runs may move while it is read."""
        verdicts: dict[str, LookUpVerdict] = {run.run_id: "absent" for run in runs}
        for _ in range(2):
            left = [run for run in runs if verdicts[run.run_id] == "absent"]
            if left:
                self._settle(verdicts, left, await self._walk(None, left, WALK_PAGES))
        return verdicts

    def _settle(self, verdicts: dict[str, LookUpVerdict], runs: Sequence[Run], answer: LookUpAnswer) -> None:
        for run in runs:
            if answer.has(run):
                verdicts[run.run_id] = "found"
            elif not answer.ended:
                verdicts[run.run_id] = "unknown"

    async def _by_creation(self, run: Run, offset: timedelta) -> LookUpAnswer:
        if run.created_at is None:
            return LookUpAnswer((), ended=False)
        return await self._walk(TimeRange.around(run.created_at, offset), [run], WINDOW_PAGES)

    async def _walk(self, span: TimeRange | None, wanted: Sequence[Run], most: int) -> LookUpAnswer:
        """Read pages until all wanted runs were shown."""
        shown: list[Run] = []
        is_complete = True
        missing = {run.run_id for run in wanted}
        query = RunQuery(since=span.start, until=span.end) if span else None
        with suppress(EndlessListError):
            async for stored in self.reader.read(query):
                most -= 1
                shown += stored.page.runs
                is_complete = is_complete and not stored.page.dropped and not stored.page.is_shuffled
                missing -= {run.run_id for run in stored.page.runs}
                if stored.page.next_token is None:
                    return LookUpAnswer(tuple(shown), ended=is_complete)
                if not most or (wanted and not missing) or _is_far(span, shown, stored.page.runs, most):
                    break
        return LookUpAnswer(tuple(shown), ended=False)

    async def _examine(self, shown: Sequence[Run], offset: timedelta) -> tuple[DateFilter, ...]:
        """Find out the possible date filters; empty: none fits."""
        controls = _controls(shown)
        found = await self._fits_all(controls, offset)
        if not found and controls and (offset := await self._offset(controls[-1])):
            found = await self._fits_all(controls, offset)
        if found:
            certain = found[0] if len(found) == 1 else "unknown"
            await self.reader.cache.set_traits(ServiceTraits(certain, offset))
        return found

    async def _fits_all(self, controls: Sequence[Run], offset: timedelta) -> tuple[DateFilter, ...]:
        """The filters that fit the answers about two runs: one may have an odd time."""
        asked: DateFilter
        for asked in ("created", "updated"):
            answers = [await self._fits(control, asked, offset) for control in controls[:2]]
            if common := tuple(name for name in (answers or [()])[0] if all(name in each for each in answers)):
                return common
        return ()

    async def _fits(self, control: Run, asked: DateFilter, offset: timedelta) -> tuple[DateFilter, ...]:
        """Request an existing run by one of its times; the filters that fit the answer, none if it lacks the run."""
        shown = control.created_at if asked == "created" else control.updated_at
        if shown is None:
            return ()
        span = TimeRange.around(shown, offset)
        answer = await self._walk(span, [control], 1)
        if not answer.has(control):
            return ()
        others = [run for run in answer.runs if _is_plausible(run)]
        by_creation = all(span.holds(run.created_at, offset) for run in others)
        by_change = all(span.holds(run.updated_at, offset) for run in others)
        fits: dict[DateFilter, bool] = {"created": by_creation, "updated": by_change}
        return tuple(name for name, does_fit in fits.items() if does_fit) or ("ignored",)

    async def _offset(self, control: Run) -> timedelta:
        """How much later the service shows its times than it filters them, by bisection."""
        low, high = -FURTHEST, FURTHEST
        while low < high:
            middle = (low + high + 1) // 2
            until = control.created_at - middle * QUARTER + SECOND if control.created_at else None
            page = await self.reader.client.list_runs(page_size=10, date_to=until)
            newest = max((run.created_at for run in page.runs if run.created_at), default=None)
            if newest is not None and control.created_at is not None and newest >= control.created_at:
                low = middle
            else:
                high = middle - 1
        return low * QUARTER


def _is_far(span: TimeRange | None, shown: Sequence[Run], last: Sequence[Run], most: int) -> bool:
    """Whether the start of the span is more than `most` pages away, by the density of the last shown page."""
    if span is None or span.end is None:
        return False
    # Only durations are compared: the shown times may be local ones.
    return span.end - span.start - _length(shown) > most * (_length(last) + SECOND)


def _length(runs: Sequence[Run]) -> timedelta:
    times = [run.created_at for run in runs if run.created_at is not None]
    return max(times) - min(times) if times else timedelta(0)


def _is_plausible(run: Run) -> bool:
    """Whether the run can be requested by its creation: its last change follows that, and not by weeks."""
    if run.created_at is None or run.updated_at is None:
        return False
    return -APART <= run.updated_at - run.created_at <= LONGEST


def _controls(shown: Sequence[Run]) -> Sequence[Run]:
    """The runs that show most about the date filter, best first: final and old ones whose two times differ."""

    def worth(index: int) -> tuple[bool, bool, int]:
        run = plausible[index]
        is_apart = bool(run.created_at and run.updated_at and run.updated_at - run.created_at > APART)
        return is_apart, run.status in FINAL_STATUSES, index

    plausible = [run for run in shown if _is_plausible(run)]
    return [plausible[index] for index in sorted(range(len(plausible)), key=worth, reverse=True)]
