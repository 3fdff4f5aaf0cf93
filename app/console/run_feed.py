"""The feed of the run table: reads what is wanted when it is asked, and again when the cache changed."""

from collections.abc import Callable, Mapping
from datetime import datetime

from app.console.latest import Latest, Start
from app.console.run_reading import (
    Question,
    is_scan,
    read_extent,
    read_first,
    read_total,
    read_window,
    statuses_through,
)
from app.console.views import Wanted
from storage.cache import Cache
from storage.errors import StorageError
from storage.records import RunFilter
from widgets.filter_extent import Extent
from widgets.run_table import RunTable


class RunFeed:
    """Keeps one table true; reading never overlaps, and what was asked meanwhile is read once, with the latest wish."""

    def __init__(
        self,
        cache: Cache,
        table: RunTable,
        clock: Callable[[], datetime],
        start: Start,
        *,
        wanted: Wanted,
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

    def want(self, wanted: Wanted) -> None:
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
        except StorageError as error:
            self._failed(error)

    async def _read_window(self, condition: RunFilter, *, is_fresh: bool) -> None:
        place = self._table.here
        window = await read_window(self._cache, Question(condition, self.wanted.sort, place, is_fresh))
        self._table.show(window, place)
        if is_fresh:
            await self._say(condition, window.total)

    async def _read_page_by_page(self, condition: RunFilter) -> None:
        """The first page as soon as it is found; how many there are once all were looked at."""
        place = self._table.here
        window = await read_first(self._cache, condition, self.wanted.sort, place)
        self._table.show(window, place)
        if len(window.rows) == place.limit:
            self._tell(await read_extent(self._cache, window.total, condition, is_counted=False))
            self._table.counted(await read_total(self._cache, condition))
        await self._say(condition, self._table.total)

    async def _say(self, condition: RunFilter, total: int) -> None:
        self._tell(await read_extent(self._cache, total, condition))
        self._table.mark_stuck(await self._cache.stuck())
        counts = await self._cache.status_counts(condition)
        self._count(counts, statuses_through(condition, counts))
