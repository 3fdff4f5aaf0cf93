"""Re-reading the recent past, page by page and slowly, for late changes and deletions that no poll shows."""

import time
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from app.api.budget import Priority
from app.api.client import Client
from app.api.errors import ApiError, EndlessListError, RateLimitedError, RefusedError
from app.api.paging import EndCheck
from app.config import HistorySettings
from app.sync.fill import WIDER
from app.sync.look_up import LOOK_UPS
from app.sync.reader import RunQuery, RunReader, StoredPage
from app.sync.runs import RunSync
from app.sync.walk import reach
from storage.records import RunFilter, RunPage
from storage.records.backfill import RereadPlace

TICK_S: Final = 60.0
"""Seconds between two pages; fewer if a pass would take longer than a day."""
PASS_S: Final = 86_400.0
SHORTEST_S: Final = 2.0


@dataclass(slots=True)
class Rereader:
    """Reads the runs of the last days again, newest first, and then starts over."""

    runs: RunSync
    client: Client
    history: HistorySettings
    _reader: RunReader = field(init=False)
    _due_s: float = field(init=False)
    """Monotonic seconds."""
    _tick_s: float = TICK_S
    _check: EndCheck = field(default_factory=EndCheck)
    _is_shuffled: bool = False
    """The pages of this pass have no steady order: some runs may be missing."""
    _checked: str | None = None
    """The token of the page that was checked last."""

    def __post_init__(self) -> None:
        self._reader = replace(self.runs.reader, client=self.client.at(Priority.BACKFILL))
        self._due_s = time.monotonic() + TICK_S

    async def work(self) -> float:
        """Read a page if it is time; return the seconds until the next one. Failures are left to the next time."""
        if self.history.reread_days and time.monotonic() >= self._due_s:
            wait_s: float | None = None
            try:
                await self.step()
            except RateLimitedError as error:
                wait_s = error.retry_after_s
            except ApiError:
                pass  # The polls report this failure.
            self._due_s = time.monotonic() + max(self._tick_s, wait_s or 0.0)
        return max(0.0, self._due_s - time.monotonic()) if self.history.reread_days else TICK_S

    async def whole_pass(self) -> None:
        """Read all of the recent past again, at once.

        Raises:
            ApiError: A request failed; runs before it are kept.
        """
        while not await self.step():
            pass

    async def step(self) -> bool:
        """Read one page again and look for runs that it should have shown; return whether it ended a pass.

        Raises:
            ApiError: A request failed.
        """
        traits = await self.runs.service_traits()
        by_date = traits.date_filter == "created"
        place = await self.runs.cache.reread() or await self._begin(None)
        if place.floor is not None and (dropped := await self.runs.cache.dropped_until()) is not None:
            # Runs that were dropped to make room are not fetched again.
            place = replace(place, floor=max(place.floor, dropped + 2 * WIDER))
        stored = await self._page(place, traits.display_offset if by_date else None)
        if stored is None:  # The page token was refused: what was read is confirmed, the rest has to wait.
            await self._begin(place)
            return True
        ended = stored.page.next_token is None or self._is_endless(place, stored.page)
        bottom = reach(stored.page.runs)
        down_to = place.down_to if bottom is None else min(bottom, place.down_to or bottom)
        is_over = ended or (place.floor is not None and down_to is not None and down_to <= place.floor)
        if await self._look_for_missing(place, stored.page, down_to, ended=ended, by_date=by_date):
            return False  # More runs are missing than one step looks up: the next step reads the same page.
        if is_over:
            if by_date and place.floor is not None and not self._is_shuffled:
                await self.runs.cache.keep_pass(place.floor, place.began_at)
            await self._begin(place)
            return True
        # With dates, a new request is safe from pages that shift, as long as it asks for something new.
        token = None if by_date and down_to != place.down_to else stored.page.next_token
        await self.runs.cache.keep_reread(replace(place, down_to=down_to, token=token))
        return False

    def _is_endless(self, place: RereadPlace, page: RunPage) -> bool:
        """Whether the request's pages would never end."""
        if place.token is None:
            self._check = EndCheck()
        elif place.token == self._checked:
            return False  # This page was checked before.
        self._checked = place.token
        met = self._check.meet(page)
        self._is_shuffled = self._is_shuffled or met.is_shuffled
        try:
            self._check.step(met)
        except EndlessListError:
            return True
        return False

    async def _begin(self, last: RereadPlace | None) -> RereadPlace:
        """Start a new pass at the newest run."""
        self._is_shuffled = False
        ranges = (await self.runs.cache.coverage()).ranges
        newest, days = ranges[0].end if ranges else None, timedelta(days=self.history.reread_days)
        floor = None if newest is None else newest - days
        place = RereadPlace(self.runs.clock(), floor, last_began_at=last.began_at if last else None)
        await self.runs.cache.keep_reread(place)
        recent = await self.runs.cache.count(RunFilter(since=floor))
        pages = max(1.0, recent / self._reader.page_size)
        self._tick_s = min(TICK_S, max(SHORTEST_S, PASS_S / pages))
        return place

    async def _page(self, place: RereadPlace, offset: timedelta | None) -> StoredPage | None:
        """The next page, requested with dates if their offset is given. None: its token is refused."""
        query = RunQuery()
        if offset is not None and place.floor is not None:
            until = None if place.down_to is None else place.down_to - offset + WIDER
            query = RunQuery(since=place.floor - offset - WIDER, until=until)
        try:
            async with aclosing(self._reader.read(query, token=place.token)) as pages:
                return await anext(pages)
        except RefusedError as error:
            if place.token is None or isinstance(error, RateLimitedError):
                raise
            return None

    async def _look_for_missing(
        self, place: RereadPlace, page: RunPage, down_to: datetime | None, *, ended: bool, by_date: bool
    ) -> bool:
        """Look for runs that this page should have shown; return whether there may be more of them."""
        if not ended and down_to is None:
            return False
        since = down_to if not ended else place.floor if by_date else None
        missing = await self.runs.cache.unseen(since, place.down_to, place.began_at, LOOK_UPS)
        is_whole = place.down_to is None and place.token is None and page.next_token is None
        verdicts = await self.runs.look_for(
            missing, page.runs, is_certain=is_whole and not by_date and not page.dropped
        )
        return len(missing) == LOOK_UPS and "unknown" not in verdicts.values()
