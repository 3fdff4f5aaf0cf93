"""What the runs screen shows, read from the cache and the service: rows, numbers, figures, one run in full."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from app.console.ledger_turns import indented, turn_of
from app.console.runs.views import ALL, TableQuery, View
from app.console.session.coalesced_task import CoalescedTask, Start
from app.query import parse
from app.text import safe_text
from storage.records import KNOWN_STATUSES, RunFilter, RunRow, RunWindow, WindowRequest
from widgets.extent import Extent
from widgets.runs.columns import FIGURES
from widgets.runs.facts import Branch, RunView
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from textual.timer import Timer

    from app.console.base.screen import BaseScreen
    from app.console.runs.older_runs import OlderRuns
    from app.console.session import Session
    from app.engine import Engine
    from app.events import Event
    from app.results.service import ServiceTurns
    from storage.cache.cache import Cache
    from storage.cache.first_paint import FirstPaint
    from storage.records import RunDetail, RunFigures
    from storage.records.coverage import BackfillPhase
    from widgets.runs.pane import RunPane

LOOKS_S: Final = (0.015, 0.06)
"""How long the first and the second search for a page may take; what each has found by then is shown."""
PAUSE: Final = timedelta(seconds=30)
"""The pause after a failed request for figures."""
BESIDE: Final = 3
"""Runs shown before and after one on the same branch."""
MOST_BESIDE: Final = 100
"""Runs beyond these are not counted."""
RESTS_S: Final = 0.4
"""How long the cursor rests on a run before the service is asked about it."""


class TableLoader:
    """Keeps one table current; it reads one window at a time, and cancels the search of a query that was replaced."""

    def __init__(
        self,
        session: "Session",
        table: RunTable,
        query: TableQuery,
        start: Start,
        show_extent: Callable[[Extent], None],
    ) -> None:
        """Prepare; `show_extent` is called with the numbers that belong to the rows."""
        self._session = session
        self.table = table
        self._show_extent = show_extent
        self.query = query
        self._is_new = False
        """Whether the query changed since the last reading began."""
        self._is_stale = False
        """Whether runs changed since the last reading began."""
        self._is_behind = False
        """Whether runs came in the background, which are read with the next tick."""
        self._phase: BackfillPhase = "idle"
        self._rows = CoalescedTask(self._read, start)
        self._extent = CoalescedTask(self._read_extent, start)
        self._figures = CoalescedTask(self._read_figures, start)
        self._known_figures: dict[str, RunFigures] = {}
        self._figures_of: dict[str, object] = {}
        """The state for which each run's figures are complete."""
        self._not_before: datetime | None = None

    @cached_property
    def service_turns(self) -> "ServiceTurns":
        """The service's turns of the runs that it was asked about."""
        from app.results.service import ServiceTurns  # keeps the first frame quick

        return ServiceTurns()

    # What asks for rows

    def show_first(self, first: "FirstPaint") -> None:
        """Show what the cache held before the engine is open."""
        condition = self._condition
        if self.query.grouping is None:
            request = self.table.request(condition, self.query.sort)
            self.table.show(RunWindow(first.total, 0, first.rows), request)
        self._show_extent(Extent(first.total, first.held, first.coverage, is_filtered=bool(condition)))

    def load(self) -> None:
        """Read the rows around the cursor, which moved."""
        self._rows.ask()

    def runs_changed(self) -> None:
        """Read the rows again, and their places in the order."""
        self._is_stale = True
        self._rows.ask()

    def engine_changed(self, event: "Event") -> None:
        """Read again what changed; runs fetched in the background wait for the next tick, as they come often."""
        from app.events import BackfillMoved, CacheChangedElsewhere, LinkChanged, RunsChanged

        engine = self._session.engine
        is_filling = engine is not None and engine.backfill.progress.phase == "running"
        if isinstance(event, LinkChanged) and not self.table.shows_unconfirmed:
            # The end of a poll changes the coverage: up to when, and how far back, nothing is missing.
            self._extent.ask()
        elif isinstance(event, RunsChanged) and is_filling and not (event.changes.transitions or event.changes.updated):
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
        self._load_figures()
        if self._is_behind:
            self._is_behind = False
            self.runs_changed()

    def seek(self, run_id: str) -> None:
        """Put the cursor on a run as soon as it is in the table."""
        self.table.seek(run_id)
        self.runs_changed()

    def query_changed(self, before: TableQuery, after: TableQuery) -> None:
        """Read other rows, if the query has others, and give up a search that is still going on."""
        self.query, now = after, self._session.run_now()
        has_other_groups = (after.grouping and after.grouping.by) != (before.grouping and before.grouping.by)
        if after.sort != before.sort or after.condition(now) != before.condition(now) or has_other_groups:
            # After sorting the ends of the table matter, after filtering the same run among others.
            self.table.start_over(follow=after.sort == before.sort)
            self._is_new = True
            self._rows.ask_anew()
        elif after.grouping != before.grouping:
            # Where groups are folded or unfolded, the others stay where they are.
            self._is_new = True
            self.runs_changed()

    @property
    def _condition(self) -> RunFilter:
        return self.query.condition(self._session.run_now())

    # Reading rows

    async def _read(self) -> None:
        engine = self._session.engine
        if engine is None:
            return
        is_new, is_stale = self._is_new, self._is_stale
        self._is_new = self._is_stale = False
        try:
            cache, table, query, condition = engine.cache, self.table, self.query, self._condition
            if is_new and condition.is_scan and query.grouping is None:
                await self._read_page_by_page(cache, condition)
            else:
                request = table.request(condition, query.sort, query.grouping, is_fresh=is_new or is_stale)
                table.show(await cache.window(request), request)
            self._load_figures()
            if is_new or is_stale:
                # The rows first: showing the numbers may lay out the screen again.
                await self._painted()
                self._show_extent(await read_extent(cache, table.count, condition))
            if is_stale:
                table.mark_stuck(await cache.stuck())
        except BaseException:
            # The next reading has to make up for it.
            self._is_new, self._is_stale = self._is_new or is_new, self._is_stale or is_stale
            raise

    async def _read_page_by_page(self, cache: "Cache", condition: RunFilter) -> None:
        """Show what is found at once, then the rows around it, and how many there are once all runs were searched."""
        table, sort = self.table, self.query.sort
        found = 0
        for patience_s in LOOKS_S:
            request = table.request(condition, sort)
            rows = await cache.first_rows(condition, sort, limit=table.page, patience_s=patience_s)
            if len(rows) > found:
                found = len(rows)
                table.show(first_window(rows, request), request)
                await self._painted()
            if found == table.page:
                break
        request = table.request(condition, sort)
        last = request.offset + request.limit
        rows = await cache.rows(condition, sort, offset=0, limit=last)
        table.show(first_window(rows, request), request)
        if len(rows) == last:
            self._show_extent(await read_extent(cache, len(rows), condition, is_counted=False))
            table.counted(await cache.count(condition))

    async def _read_extent(self) -> None:
        if (engine := self._session.engine) is not None:
            self._show_extent(await read_extent(engine.cache, self.table.count, self._condition))

    async def _painted(self) -> None:
        # A console that closes takes the table away before the reading for it has ended.
        if self.table.is_running:
            await self.table.wait_for_refresh()

    # Figures that only the service has

    def _load_figures(self) -> None:
        """Read the missing figures of the runs in view."""
        is_paused = self._not_before is not None and self._session.clock() < self._not_before
        if not is_paused and FIGURES & set(self.table.choice.shown) and self._without_figures():
            self._figures.ask()

    def _without_figures(self) -> list[str]:
        rows = self.table.rows_on_show
        return [row.run_id for row in rows if self._figures_of.get(row.run_id) != (row.status, row.updated_at)]

    async def _read_figures(self) -> None:
        """Read figures from the cache, then from the service, run by run and behind all other requests."""
        from app.api.budget import Priority
        from app.api.errors import ApiError

        if (engine := self._session.engine) is None:
            return
        details = list((await engine.cache.details(self._without_figures())).values())
        self._show_figures(details)
        extension = replace(engine.extension, client=engine.client.at(Priority.BACKFILL))
        for detail in details:
            if detail.run.run_id not in self._without_figures():
                continue  # It has left the view.
            try:
                await self.service_turns.ask(extension, detail.run)
            except ApiError:
                self._not_before = self._session.clock() + PAUSE
                return
            self._figures_of[detail.run.run_id] = detail.run.status, detail.run.updated_at
            self._show_figures([detail])

    def _show_figures(self, details: "Sequence[RunDetail]") -> None:
        from app.results.service import figures

        self._known_figures |= {each.run.run_id: figures(each, self.service_turns.known(each.run)) for each in details}
        self.table.show_figures(dict(self._known_figures))


class PaneLoader:
    """Keeps the pane on the run under a table's cursor."""

    def __init__(self, screen: "BaseScreen", pane: "RunPane", rows: TableLoader, older: "OlderRuns") -> None:
        """Prepare; `older` explains what the cursor is on instead of a run."""
        self._screen = screen
        self._pane = pane
        self._rows = rows
        self._older = older
        self._timer: Timer | None = None
        self.load = CoalescedTask(self._read, screen.run_worker).ask

    def engine_changed(self, event: "Event") -> None:
        """Read the run again if the event may have changed it."""
        from app.events import ActionChanged, CacheChangedElsewhere, RunsChanged

        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self.load()

    async def _read(self) -> None:
        engine, table, turns = self._screen.session.engine, self._rows.table, self._rows.service_turns
        if engine is None or table.row is None:
            self._pane.show(None, otherwise=self._older.explanation(table.group))
            return

        from app.api.errors import ApiError

        async def ask(view: RunView) -> None:
            # A failing service is reported in the header; the next visit asks again.
            with suppress(ApiError):
                await turns.ask(engine.extension, view.detail.run)
                if table.row is not None and table.row.run_id == view.detail.run.run_id:
                    self._pane.show(self._with_service_facts(view))

        view = await read_run(engine, table.row.run_id, stuck=table.is_stuck(table.row.run_id))
        if view is not None and turns.holds(view.detail.run):
            view = self._with_service_facts(view)
        elif view is not None and view.detail.is_final:
            # Ask once the cursor has rested on the run.
            if self._timer is not None:
                self._timer.stop()
            self._timer = self._pane.set_timer(
                RESTS_S, partial(self._screen.run_worker, partial(ask, view), exclusive=True, group="told")
            )
        self._pane.show(view)

    def _with_service_facts(self, view: RunView) -> RunView:
        from app.results.service import reason

        turns = self._rows.service_turns.known(view.detail.run)
        count = turns.turns[-1].number if turns is not None and turns.turns else None
        return replace(view, reason=safe_text(reason(turns)) or None, turn_count=count)


async def read_run(engine: "Engine", run_id: str, *, stuck: bool) -> RunView | None:
    """Read a run with the instructions sent from here; None: the cache does not hold it.

    Raises:
        StorageError: Cache or ledger cannot be read.
    """
    cache, ledger = engine.cache, engine.ledger
    detail, ahead = await cache.detail(run_id), await cache.run_clock_ahead()
    if detail is None:
        return None
    # By the service's clock, as all other times of a run.
    seen = replace(detail, first_seen_at=detail.first_seen_at + ahead, last_seen_at=detail.last_seen_at + ahead)
    actions = await ledger.for_run(run_id)
    earlier = (a.subject for a in actions if a.kind == "run.continue" and run_id == a.result_id != a.subject)
    return RunView(
        seen,
        tuple(turn_of(action) for action in actions),
        stuck,
        next(earlier, None),
        Branch(*await cache.on_branch(run_id, each_way=BESIDE, most=MOST_BESIDE)),
        indented(detail.run.raw_json),
        engine.settings.history.confirmed_for,
    )


class ViewCounts:
    """The number of runs in each view, counted in the background."""

    def __init__(self, session: "Session", start: Start, changed: Callable[[], None]) -> None:
        """Start empty; `changed` is called after each change."""
        self._session = session
        self._changed = changed
        self._counts: dict[str, int] = {}
        """By the line of the view."""
        self.statuses: frozenset[str] | None = None
        """All statuses ever seen, and the spec's; None: not read yet."""
        self._query, self._views = TableQuery(), tuple[View, ...]()
        self._task = CoalescedTask(self._read, start)

    def of(self, line: str) -> int | None:
        """The number of runs in the view with this line, or None."""
        return self._counts.get(line)

    def count(self, query: TableQuery, views: tuple[View, ...], extent: Extent) -> None:
        """Show the table's own count at once, and count the other views."""
        self._query, self._views = query, views
        self._counts[ALL.query] = extent.held
        if not query.is_changed:
            self._counts.pop(query.view.query, None)
            if extent.is_counted:
                self._counts[query.view.query] = extent.matching
        self._task.ask()

    async def _read(self) -> None:
        if (engine := self._session.engine) is None:
            return
        self.statuses = KNOWN_STATUSES | set(await engine.cache.known_statuses())
        now, found = self._session.run_now(), dict[str, int]()
        for line in dict.fromkeys(view.query for view in self._views):
            condition = parse(line, now).filter
            # Only what an index counts: a count must not cost a search of a million runs.
            if not (condition.is_scan or condition.branches or condition.not_branches):
                found[line] = await engine.cache.count(condition)
            elif line == self._query.view.query and line in self._counts:
                found[line] = self._counts[line]
        if found != self._counts:
            self._counts = found
            self._changed()


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
