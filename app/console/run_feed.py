"""The feed of the run table: reads what is wanted when it is asked, and again when the cache changed."""

from collections.abc import Callable
from datetime import datetime

from app.console.latest import Latest, Start
from app.console.run_reading import Question, read_extent, read_window
from app.console.views import Wanted
from storage.cache import Cache
from storage.errors import StorageError
from storage.records import RunSort
from widgets.filter_bar import Extent
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
        as_of: Callable[[], datetime],
        tell: Callable[[Extent], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        """Reads nothing yet.

        Args:
            cache: Where the rows are.
            table: Who gets them, and who knows where its reader stands.
            clock: The time.
            start: Runs a coroutine in the background.
            as_of: When the service last answered: no run is stuck because nobody could look.
            tell: Is told how much of how much is on show.
            failed: Is told when the cache cannot be read.
        """
        self.wanted = Wanted()
        self.sort = RunSort()
        self._cache = cache
        self._table = table
        self._clock = clock
        self._as_of = as_of
        self._tell = tell
        self._failed = failed
        self._is_stale = False
        """Runs or the wish changed since the last reading began."""
        self._latest = Latest(self._read, start)

    def look(self) -> None:
        """The reader moved: rows around the new place are wanted."""
        self._latest.ask()

    def changed(self) -> None:
        """Runs changed: the anchor may be elsewhere."""
        self._is_stale = True
        self._latest.ask()

    def want(self, wanted: Wanted, sort: RunSort) -> None:
        """Other rows, or another order, are wanted."""
        # Who sorts wants to see the ends; who filters wants to see this run among others.
        self._table.start_over(follow=sort == self.sort)
        self.wanted, self.sort = wanted, sort
        self.changed()

    async def _read(self) -> None:
        is_fresh, self._is_stale = self._is_stale, False
        place, wish = self._table.here, (self.wanted, self.sort)
        condition = self.wanted.condition(self._clock())
        try:
            window = await read_window(self._cache, Question(condition, self.sort, place, is_fresh))
            extent = await read_extent(self._cache, window.total, condition) if is_fresh else None
            stuck = await self._cache.stuck(self._as_of()) if is_fresh else None
        except StorageError as error:
            self._failed(error)
            return
        if wish != (self.wanted, self.sort):
            return  # Rows that nobody wants any more; the next reading is already asked for.
        self._table.show(window, place)
        if extent is not None:
            self._tell(extent)
        if stuck is not None:
            self._table.mark_stuck(stuck)
