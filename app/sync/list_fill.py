"""Filling gaps by walking down the list, for a service that does not filter by creation."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.api.errors import (
    EndlessListError,
    ForbiddenError,
    NotAuthorizedError,
    RateLimitedError,
    RefusedError,
    ServerFailedError,
    UnsteadyListError,
)
from app.sync.fill import Missing, Pace
from app.sync.reader import RunReader, StoredPage
from app.sync.runs import RunSync
from app.sync.walk import Walk
from storage.records import Coverage
from storage.records.backfill import ListPlace

_NOT_THE_TOKENS_FAULT: Final = (NotAuthorizedError, ForbiddenError, RateLimitedError, ServerFailedError)


@dataclass(slots=True)
class ListFill:
    """Fills gaps by walks down the list, page by page; each continues where an earlier one stopped."""

    runs: RunSync
    reader: RunReader
    pace: Pace
    missing: Missing
    _is_unsteady: bool = False

    async def fill(self) -> None:
        """Walk until nothing is missing, the pace stops it, or another walk would bring no more.

        Raises:
            EndlessListError: The list goes on for ever.
            UnsteadyListError: It may have left out missing runs.
            ApiError: A request failed; runs before it are kept.
        """
        from_top: set[datetime | None] = set()
        while (gaps := await self.missing()) and self.pace.goes_on():
            before = gaps[0].before
            place = await self.reader.cache.place(before)
            if place is None and before in from_top:
                if self._is_unsteady:
                    raise UnsteadyListError
                return
            if place is None:
                from_top.add(before)
            try:
                await self._walk(place)
            except (RefusedError, EndlessListError) as error:
                # An endless list has nothing more below a known creation; without times, a newer gap may be above that.
                is_bottom = isinstance(error, EndlessListError) and before is not None
                if place is None or is_bottom or isinstance(error, _NOT_THE_TOKENS_FAULT):
                    raise
                await self.reader.cache.keep_place(before, None)

    async def _walk(self, place: ListPlace | None) -> None:
        walk = _Descent(self.runs, Walk(place.as_of) if place else await self.runs.begin_walk(), place)
        async for stored in self.reader.read(token=place.token if place else None):
            bottom, coverage = await walk.take(stored)
            self._is_unsteady = self._is_unsteady or stored.page.is_shuffled
            self.pace.moved(len(stored.changes.new), coverage, stored.page.dropped)
            gaps = await self.missing()
            if not gaps or not self.pace.goes_on():
                return
            if gaps[0].before != bottom and await self.reader.cache.place(gaps[0].before):
                return  # Held runs begin here; a walk that came further is known.
        # The list ended: the place leads nowhere, and a list without times has no more to fetch.
        await self.reader.cache.keep_place(None, None)
        if (await self.reader.cache.coverage()).whole:
            await self.reader.cache.mark_unread(is_unread=False)


class _Descent:
    """One walk down the list: the range that it completes, and its place."""

    def __init__(self, runs: RunSync, walk: Walk, place: ListPlace | None) -> None:
        self._runs = runs
        self._cache = runs.cache
        self._walk = walk
        self._place = place
        self._is_from_top = place is None
        """Whether it began at the newest run and missed none."""
        self._is_linked = place is None
        """Whether its pages join those read before."""
        self._token = place.token if place else None
        """Leads to the next page."""
        self._total: int | None = None

    async def take(self, stored: StoredPage) -> tuple[datetime | None, Coverage | None]:
        """Take the next page; return the creation down to which the walk is complete, and the coverage."""
        page, place = stored.page, self._place
        shrank = self._total is not None and page.total_count is not None and page.total_count < self._total
        if shrank or page.is_shuffled:
            # Runs slipped by, see `Walk.slipped`: this page proves nothing about what is above it.
            self._walk, self._is_from_top, self._is_linked = Walk(self._walk.as_of, is_inside=True), False, False
        if place is not None:
            self._is_linked = any(run.run_id == place.run_id for run in page.runs)
        self._total, self._place = page.total_count, None
        coverage = await (self._claim_from_top(stored) if self._is_from_top else self._claim(stored))
        found = self._walk.range()
        bottom = found.start if found else None
        if self._token is not None and page.runs and page.next_token is not None:
            await self._cache.keep_place(bottom, ListPlace(self._token, page.runs[-1].run_id, self._walk.as_of))
        self._token = page.next_token
        return bottom, coverage

    async def _claim_from_top(self, stored: StoredPage) -> Coverage:
        await self._runs.claim(self._walk, stored)
        return await self._cache.coverage()

    async def _claim(self, stored: StoredPage) -> Coverage | None:
        self._walk.step(stored)
        found = self._walk.range()
        if found is None or (found.end is None and not self._is_linked):
            return None
        as_of = self._walk.as_of if found.end is None else None
        return await self._cache.extend_coverage(found.start, found.end, as_of)
