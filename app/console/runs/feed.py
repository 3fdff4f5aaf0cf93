"""The feed of the run table: reads what is wanted when it is asked, and again when the cache changed."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from app.console.latest import Latest, Start
from app.console.runs.loaders import is_scan, read_extent, statuses_through, window_of_first
from app.console.runs.views import TableQuery
from storage.cache import Cache
from storage.errors import StorageError
from storage.records import RunFilter
from widgets.filter.bar import Extent
from widgets.runs.table import RunTable

LOOKS_S: Final = (0.015, 0.06)
"""How long a search may look for its first page before what was found is shown; then once more, from the beginning."""


class RunFeed:
    """Keeps one table true; reading never overlaps, and what was asked meanwhile is read once, with the latest wish."""

    def __init__(
        self,
        cache: Cache,
        table: RunTable,
        clock: Callable[[], datetime],
        start: Start,
        *,
        wanted: TableQuery,
        tell: Callable[[Extent], None],
        count: Callable[[Mapping[str, int], frozenset[str]], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        """Reads nothing yet.

        Args:
            cache: Where the rows are.
            table: Who gets them, and who knows where its reader stands.
            clock: The time.
            start: Runs a coroutine in the background.
            wanted: What is wanted at first.
            tell: Is told how much of how much is on show.
            count: Is told how many runs of each status there are, and which statuses the filter lets through.
            failed: Is told when the cache cannot be read.
        """
        self.wanted = wanted
        self._cache = cache
        self._table = table
        self._clock = clock
        self._tell = tell
        self._count = count
        self._failed = failed
        self._is_new = False
        """Something else is wanted since the last reading began."""
        self._is_stale = False
        """Runs changed since the last reading began."""
        self._latest = Latest(self._read, start)

    def look(self) -> None:
        """The reader moved: rows around the new place are wanted."""
        self._latest.ask()

    def changed(self) -> None:
        """Runs changed: the anchor may be elsewhere."""
        self._is_stale = True
        self._latest.ask()

    def want(self, wanted: TableQuery) -> None:
        """Other rows, or another order, are wanted; a search that is still under way is given up."""
        # Who sorts wants to see the ends; who filters wants to see this run among others.
        self._table.start_over(follow=wanted.sort == self.wanted.sort)
        self.wanted = wanted
        self._is_new = True
        self._latest.restart()

    async def _read(self) -> None:
        is_new, is_stale = self._is_new, self._is_stale
        self._is_new = self._is_stale = False
        condition = self.wanted.condition(self._clock())
        try:
            if is_new and is_scan(condition):
                await self._read_page_by_page(condition)
            else:
                await self._read_window(condition, is_fresh=is_new or is_stale)
            if is_new or is_stale:
                await self._say(condition)
            if is_stale:
                self._table.mark_stuck(await self._cache.stuck())
        except StorageError as error:
            self._failed(error)

    async def _read_window(self, condition: RunFilter, *, is_fresh: bool) -> None:
        request = self._table.request(condition, self.wanted.sort, is_fresh=is_fresh)
        self._table.show(await self._cache.window(request), request)

    async def _read_page_by_page(self, condition: RunFilter) -> None:
        """What is found at once, then the rows around it, and how many there are once all were looked at."""
        table, sort, cache = self._table, self.wanted.sort, self._cache
        found = 0
        for patience_s in LOOKS_S:
            request = table.request(condition, sort)
            rows = await cache.first_rows(condition, sort, limit=table.page, patience_s=patience_s)
            if len(rows) > found:
                found = len(rows)
                table.show(window_of_first(rows, request), request)
                await self._painted()
            if found == table.page:
                break
        request = table.request(condition, sort)
        last = request.offset + request.limit
        rows = await cache.rows(condition, sort, offset=0, limit=last)
        table.show(window_of_first(rows, request), request)
        if len(rows) == last:
            self._tell(await read_extent(cache, len(rows), condition, is_counted=False))
            table.counted(await cache.count(condition))

    async def _say(self, condition: RunFilter) -> None:
        # The rows first: what is said of them may lay out the screen anew.
        await self._painted()
        self._tell(await read_extent(self._cache, self._table.total, condition))
        counts = await self._cache.status_counts(condition)
        self._count(counts, statuses_through(condition, counts))

    async def _painted(self) -> None:
        # A console that closes takes the table away before the reading for it has ended.
        if self._table.is_running:
            await self._table.wait_for_refresh()
