"""Reading the runs table: the rows on show, again after each change."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from app.console.runs.figures_loader import FiguresLoader
from app.console.runs.screen_context import ScreenContext
from app.console.runs.views import TableQuery
from app.console.session.coalesced_task import CoalescedTask
from storage.errors import StorageError
from storage.records import RunFilter, RunRow, RunWindow, WindowRequest
from widgets.cursor_view import CURSOR_ACTIONS
from widgets.filter.extent import Extent
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.events import Event, RunsChanged
    from storage.cache import Cache
    from storage.cache.first_paint import FirstPaint
    from storage.records.backfill import BackfillPhase
    from storage.records.grouping import GroupBy

STEPS_DOWN: Final = {"move(1)": 1, "mark": 1, "stretch(1)": 1}
"""How far below the cursor's row a key's action leads."""
LOOKS_S: Final = (0.015, 0.06)
"""How long the first and the second search for a page may take; what each has found by then is shown."""


class TableLoader:
    """Keeps one table current; it reads one window at a time, and cancels a search when the next one is asked for."""

    def __init__(
        self,
        context: ScreenContext,
        table: RunTable,
        query: Callable[[], TableQuery],
        *,
        show_extent: Callable[[Extent], None],
    ) -> None:
        self._session = context.session
        self._table = table
        self._query = query
        self._show_extent = show_extent
        self._is_new = False
        """Whether the query changed since the last reading began."""
        self._is_stale = False
        """Whether runs changed since the last reading began."""
        self._is_behind = False
        """Whether runs came in the background, which are read with the next tick."""
        self._phase: BackfillPhase = "idle"
        self.figures = FiguresLoader(context, table)
        self._start = context.start
        self._is_asked = False
        """Whether the rows are to be read once more after the current reading."""
        self._reading: asyncio.Task[None] | None = None
        self._is_busy = self._is_given_up = False
        self._latest_extent = CoalescedTask(self._read_extent, context.start)
        self._shown: Literal["none", "some", "all"] = "none"
        """How many rows of the query that is being read are on show."""
        self._progress = asyncio.Event()
        """Set, and replaced, when rows are shown and when the reading ends."""

    def show_first(self, first: "FirstPaint") -> None:
        """Show what the cache held before the engine is open."""
        query, condition = self._query(), self._query().condition(self._session.run_now())
        if query.grouping is None:
            request = self._table.request(condition, query.sort)
            self._table.show(RunWindow(first.total, 0, first.rows), request)
            self._shown = "all"
        self._show_extent(Extent(first.total, first.held, first.coverage, is_filtered=bool(condition)))

    async def begin(self) -> None:
        """Read with the engine as soon as it is open."""
        await self._session.opened()
        self.runs_changed()

    def look(self) -> None:
        """Read the rows around the cursor, which moved."""
        self._ask()

    def runs_changed(self) -> None:
        """Read the rows again, and their places in the order."""
        self._is_stale = True
        self._ask()

    def engine_changed(self, event: "Event") -> None:
        """Read again what changed; runs fetched in the background wait for the next tick, as they come often."""
        from app.events import BackfillMoved, CacheChangedElsewhere, LinkChanged, RunsChanged

        if isinstance(event, LinkChanged) and not self._table.shows_unconfirmed:
            # The end of a poll changes the coverage: up to when, and how far back, nothing is missing.
            self._latest_extent.ask()
        elif isinstance(event, RunsChanged) and self._only_fills(event):
            self._is_behind = True
        elif isinstance(event, BackfillMoved):
            # The progress is shown with the next tick.
            before, self._phase = self._phase, event.progress.phase
            if self._phase != before:
                self.runs_changed()
        elif isinstance(event, LinkChanged | RunsChanged | CacheChangedElsewhere):
            self.runs_changed()

    def tick(self) -> None:
        """Read what came in the background, and the figures for columns that were added."""
        self.figures.look()
        if self._is_behind:
            self._is_behind = False
            self.runs_changed()

    def seek(self, run_id: str) -> None:
        """Put the cursor on a run that was started here, as soon as it is in the table."""
        self._table.seek(run_id)
        self.runs_changed()

    def query_changed(self, before: TableQuery) -> None:
        """Read other rows, if the query has others, and give up a search that is still going on."""
        after, now = self._query(), self._session.run_now()
        has_other_groups = _grouped_by(after) != _grouped_by(before)
        is_other = after.sort != before.sort or after.condition(now) != before.condition(now) or has_other_groups
        if is_other and self._session.engine is not None:
            # After sorting the ends of the table matter, after filtering the same run among others.
            self._table.start_over(follow=after.sort == before.sort)
            self._is_new = True
            self._give_up()
            self._ask()
        elif after.grouping != before.grouping:
            # Where groups are folded or unfolded, the others stay where they are.
            self._is_new = True
            self.runs_changed()

    def is_awaited_by(self, action: str) -> bool:
        """Whether the rows that a key's action is about are still being read."""
        if not self._is_busy:
            return False
        if self._is_new or self._shown == "none":
            return True
        table = self._table
        if self._shown == "some":
            # More may be found below the last one.
            steps = STEPS_DOWN | {"page(1)": table.page - 1, "last": table.count}
            return table.is_at_tail or not table.is_loaded(steps.get(action, 0))
        return action not in CURSOR_ACTIONS and table.is_row_awaited

    async def awaited_by(self, action: str) -> None:
        """Wait until the rows that a key's action is about are on show, or cannot be read."""
        while self.is_awaited_by(action):
            await self._progress.wait()

    def _announce_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _show(self, window: RunWindow, request: WindowRequest, shown: Literal["some", "all"] = "all") -> None:
        self._table.show(window, request)
        self._shown = shown
        self._announce_progress()

    def _only_fills(self, event: "RunsChanged") -> bool:
        engine, changes = self._session.engine, event.changes
        is_filling = engine is not None and engine.backfill.progress.phase == "running"
        return is_filling and not (changes.transitions or changes.updated)

    def _ask(self) -> None:
        """Read the rows now, or once more after the current reading."""
        self._is_asked = True
        if not self._is_busy:
            self._is_busy = True
            self._start(self._read_all)

    def _give_up(self) -> None:
        """Cancel the current reading."""
        if self._reading is not None:
            self._is_given_up = True
            self._reading.cancel()

    async def _read_all(self) -> None:
        """Read until no reading is asked for."""
        has_failed = False
        try:
            while self._is_asked:
                self._is_asked = self._is_given_up = False
                self._reading = asyncio.ensure_future(self._read())
                try:
                    await self._reading
                except asyncio.CancelledError:
                    if not self._is_given_up:
                        raise
        except Exception:
            has_failed = True
            raise
        finally:
            self._reading, self._is_busy = None, False
            self._announce_progress()
            # The error is reported at once; what was asked for before it is read by another task.
            if has_failed and self._is_asked:
                self._ask()

    async def _read(self) -> None:
        engine = self._session.engine
        if engine is None:
            return
        is_new, is_stale = self._is_new, self._is_stale
        self._is_new = self._is_stale = False
        self._shown = "none" if is_new or self._shown == "none" else "all"
        try:
            await self._read_window(engine.cache, is_new=is_new, is_stale=is_stale)
        except (StorageError, asyncio.CancelledError):
            # The next reading has to make up for it.
            self._is_new, self._is_stale = self._is_new or is_new, self._is_stale or is_stale
            raise

    async def _read_extent(self) -> None:
        engine = self._session.engine
        if engine is not None:
            condition = self._query().condition(self._session.run_now())
            self._show_extent(await read_extent(engine.cache, self._table.count, condition))

    async def _read_window(self, cache: "Cache", *, is_new: bool, is_stale: bool) -> None:
        condition = self._query().condition(self._session.run_now())
        grouping = self._query().grouping
        if is_new and condition.is_scan and grouping is None:
            await self._read_page_by_page(cache, condition)
        else:
            request = self._table.request(condition, self._query().sort, grouping, is_fresh=is_new or is_stale)
            self._show(await cache.window(request), request)
        self.figures.look()
        if is_new or is_stale:
            # The rows first: showing the numbers may lay out the screen again.
            await self._painted()
            self._show_extent(await read_extent(cache, self._table.count, condition))
        if is_stale:
            self._table.mark_stuck(await cache.stuck())

    async def _read_page_by_page(self, cache: "Cache", condition: RunFilter) -> None:
        """Show what is found at once, then the rows around it, and how many there are once all runs were searched."""
        table, sort = self._table, self._query().sort
        found = 0
        for patience_s in LOOKS_S:
            request = table.request(condition, sort)
            rows = await cache.first_rows(condition, sort, limit=table.page, patience_s=patience_s)
            if len(rows) > found:
                found = len(rows)
                self._show(first_window(rows, request), request, "some")
                await self._painted()
            if found == table.page:
                break
        request = table.request(condition, sort)
        last = request.offset + request.limit
        rows = await cache.rows(condition, sort, offset=0, limit=last)
        self._show(first_window(rows, request), request, "some" if len(rows) == last else "all")
        if len(rows) == last:
            self._show_extent(await read_extent(cache, len(rows), condition, is_counted=False))
            table.counted(await cache.count(condition))
            self._shown = "all"
            self._announce_progress()

    async def _painted(self) -> None:
        # A console that closes takes the table away before the reading for it has ended.
        if self._table.is_running:
            await self._table.wait_for_refresh()


def _grouped_by(query: TableQuery) -> "GroupBy | None":
    return None if query.grouping is None else query.grouping.by


def first_window(rows: tuple[RunRow, ...], request: WindowRequest) -> RunWindow:
    """The first rows, as many as are known so far; the cursor is on its run if that is among them."""
    cursor = next((index for index, row in enumerate(rows) if row.run_id == request.cursor_id), 0)
    return RunWindow(len(rows), 0, rows, 0, cursor)


async def read_extent(cache: "Cache", matching: int, condition: RunFilter, *, is_counted: bool = True) -> Extent:
    """Read how many runs match, how many the cache holds, and what is missing.

    Raises:
        StorageError: The cache cannot be read.
    """
    held = await cache.count(RunFilter()) if condition else matching
    return Extent(
        matching,
        held,
        await cache.coverage(),
        is_filtered=bool(condition),
        is_counted=is_counted,
        goes_on=await cache.is_unread(),
        is_paused=await cache.backfill_paused(),
        progress=await cache.backfill_progress(cache.clock()),
    )
