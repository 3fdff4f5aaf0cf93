"""The Runs screen: the query, the table of what it matches, and the run under the cursor."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from app.console import user_preferences
from app.console.base_screen import BaseScreen
from app.console.messages import OpenRun
from app.console.runs.bulk_actions import BULK_BINDINGS, BulkActions
from app.console.runs.filter_display import FilterDisplay
from app.console.runs.loaders import PaneLoader
from app.console.runs.older_runs import OLDER_BINDINGS, OlderRuns
from app.console.runs.preferences import PreferencesWriter
from app.console.runs.query_controller import QUERY_BINDINGS, QueryController
from app.console.runs.run_actions import RUN_BINDINGS, RunActions
from app.console.runs.screen_context import ScreenContext
from app.console.runs.split import SPLIT_BINDINGS, WIDE, SplitSize, SplitView
from app.console.runs.table_loader import TableLoader
from app.console.runs.views import TableQuery
from app.console.session import Session
from app.console.troubles import UNREADABLE
from storage.records import RunWindow
from widgets.after_refresh import after_refresh
from widgets.filter.bar import FilterBar
from widgets.filter.chips import SheetRequested, ViewBar
from widgets.filter.extent import Extent
from widgets.filter.search import SearchInput
from widgets.frame.notice import Notice
from widgets.runs.columns import ColumnChoice
from widgets.runs.pane import RunPane
from widgets.runs.row_cells import SearchHighlight
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.events import Event

_hidden = partial(Binding, show=False)


class RunsScreen(BaseScreen):
    """Every run that matches the query, however many."""

    TAB = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        *RUN_BINDINGS,
        *QUERY_BINDINGS,
        *BULK_BINDINGS,
        *OLDER_BINDINGS,
        *SPLIT_BINDINGS,
        _hidden("C", "columns", "columns", tooltip="Which, in which order, how wide", id="runs.columns"),
        _hidden("i", "raw", "raw JSON", tooltip="Facts, or the run as received", id="run.raw"),
        _hidden("d", "pane", "detail on/off", id="runs.pane"),
        _hidden("escape", "clear", "clear", tooltip="The whole, fetching, marks, the line, the view", id="runs.clear"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        context = ScreenContext.of(self)
        self.preferences = PreferencesWriter.of(session, self.run_worker)
        self.query_controller = QueryController(
            context,
            self.preferences,
            row=lambda: self.table.row,
            group=lambda: self.table.group_at,
            changed=self._query_changed,
        )
        self.bar = FilterBar(self.query_controller.spans)
        self.older_runs = OlderRuns(
            context, lambda: self.query_controller.now, lambda: self.table.gaps, self._older_runs_changed
        )
        self.table = RunTable(
            session.run_now,
            self.preferences.now.columns,
            self.app.batch_update,
            confirmed_for=session.settings.history.confirmed_for,
            gap_texts=self.older_runs.texts,
        )
        self.pane = RunPane(session.run_now)
        self.split = SplitView(self.table, self.pane, user_preferences.read(session.settings).split, self._keep_split)
        self.table_loader = TableLoader(
            context, self.table, lambda: self.query_controller.now, show_extent=self._show_extent
        )
        self.run_actions = RunActions(context, lambda: self.focused_run_id, self.table_loader.seek)
        self.bulk_actions = BulkActions(context, self.query_controller, self.table)
        self.filter_display = FilterDisplay(context, self.bar, self.table, self.query_controller, self.bulk_actions)
        self._offered: tuple[frozenset[str], bool] = frozenset(), False
        """What of the older runs the keys offer, and whether they offer what is done with a run."""
        explanation = partial(self.filter_display.explanation, self.older_runs.explanation)
        self.pane_loader = PaneLoader(context, self.pane, explanation, self.table_loader.figures)

    def compose_body(self) -> Iterable[Widget]:
        """The filters, the table and the run beside or below it."""
        yield self.bar
        with Container(id="runs"):
            yield self.table
            yield self.pane

    def on_mount(self) -> None:
        """Show the cached rows, then read with the engine as soon as it is open."""
        self.session.engine_changed.subscribe(self, self.table_loader.engine_changed)
        self.table.focus()
        self._show_pane(self.preferences.now.detail)
        self.split.fit(self.app.size)
        self._show_query()
        first, query = self.session.first, self.query_controller
        if first is not None:
            request = self.table.request(query.condition, query.now.sort)
            if query.now.grouping is None:
                self.table.show(RunWindow(first.total, 0, first.rows), request)
            self._show_extent(Extent(first.total, first.held, first.coverage, is_filtered=bool(query.condition)))
        self._explain()
        self.run_worker(self._begin)

    @property
    def focused_run_id(self) -> str | None:
        """The run under the cursor."""
        return row.run_id if (row := self.table.row) else None

    def go_to(self, place: str) -> None:
        """Show the runs that a query matches."""
        self.query_controller.show_query(place)

    # What it hears from the engine and the clock

    def engine_changed(self, event: "Event") -> None:
        """Read the run beside the table again; the table's loader hears of changes itself."""
        from app.events import ActionChanged, CacheChangedElsewhere, RunsChanged

        if isinstance(event, RunsChanged | ActionChanged | CacheChangedElsewhere):
            self.pane_loader.look()

    def tick(self, _: datetime) -> None:
        """Update the ages on show, and what came in the background."""
        now = self.session.run_now()
        self.table.tick(now, self.as_of)
        self.table_loader.tick()
        self._show_what_is_missing()
        # A frame of its own: in one with the header's age all that lies between the two lines would be painted.
        if not self.pane.rests(now, self.as_of):
            after_refresh(self, self.pane.tick, now, self.as_of)

    def show_trouble(self) -> None:
        """Show trouble in the banner, or in the table while it is empty."""
        super().show_trouble()
        self._explain()

    def trouble(self) -> Notice | None:
        """What the banner says, unless the table has the room to say it."""
        return super().trouble() if self.table.count else None

    def on_resize(self, event: events.Resize) -> None:
        """Put the run beside the table, below it, or on two lines."""
        self.split.fit(event.size)

    # What it hears from the table and the filter bar

    @on(RunTable.WindowRequested)
    def _on_window_requested(self) -> None:
        self.table_loader.look()

    @on(RunTable.Highlighted)
    def _on_highlighted(self) -> None:
        self.pane_loader.look()
        self._offer(self._offered[0])

    @on(RunTable.Chosen)
    def _on_chosen(self, message: RunTable.Chosen) -> None:
        self.post_message(OpenRun(message.run_id))

    @on(RunTable.GapChosen)
    def _on_gap_chosen(self, message: RunTable.GapChosen) -> None:
        self.older_runs.fetch(message.gap or self.older_runs.below)

    @on(RunTable.GroupToggled)
    def _on_group_toggled(self, message: RunTable.GroupToggled) -> None:
        self.query_controller.toggle_group(message.name)

    @on(RunTable.Arranged)
    def _on_arranged(self, message: RunTable.Arranged) -> None:
        self._keep_columns(message.choice)

    @on(RunTable.SortRequested)
    def _on_sort_requested(self, message: RunTable.SortRequested) -> None:
        self.query_controller.sort_by(message.column)

    @on(RunTable.RangeRequested)
    def _on_range_requested(self, message: RunTable.RangeRequested) -> None:
        self.bulk_actions.mark_range(message.first_id, message.last_id)

    @on(Input.Changed, "SearchInput")
    def _on_typed(self) -> None:
        self.filter_display.typed()

    @on(SearchInput.Left)
    @on(SearchInput.Cleared)
    def _on_left(self, message: SearchInput.Left | SearchInput.Cleared) -> None:
        self.filter_display.left(is_cleared=isinstance(message, SearchInput.Cleared))

    @on(ViewBar.Picked)
    def _on_view_picked(self, message: ViewBar.Picked) -> None:
        self.query_controller.show_view(self.query_controller.views[message.index])

    @on(SheetRequested)
    def _on_sheet_requested(self, message: SheetRequested) -> None:
        self.query_controller.do(message.name)

    # What its keys do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable what cannot be done."""
        if action == "run":
            return self.run_actions.is_possible(str(parameters[0]), has_runs=self._offered[1])
        if action == "older":
            return self.older_runs.is_possible(str(parameters[0]))
        if action == "query":
            return self.query_controller.is_possible(str(parameters[0]))
        return super().check_action(action, parameters)

    async def action_run(self, name: str) -> None:
        """Act on several runs where that is possible, otherwise on the run under the cursor."""
        if not self.bulk_actions.do(name):
            await self.run_actions.do(name)

    def action_search(self) -> None:
        """Put the cursor into the line."""
        line = self.bar.line
        line.focus()
        line.put(f"{line.value.rstrip()} ".lstrip())  # What is typed is a term of its own.
        self.query_controller.learn()

    def action_query(self, name: str) -> None:
        """Change the query, or open the sheet that does."""
        self.query_controller.do(name)

    def action_older(self, name: str) -> None:
        """Fetch older runs, or pause what fetches them in the background."""
        self.older_runs.do(name)

    def action_columns(self) -> None:
        """Choose the columns."""
        from app.console.runs.columns_sheet import ColumnPicker

        table = self.table
        sheet = ColumnPicker(table.choice, self.query_controller.now.sort, table.width_of, table.take_columns)
        self.app.push_screen(sheet, self._keep_columns)

    def _keep_columns(self, choice: ColumnChoice | None) -> None:
        self.preferences.keep_columns(choice)
        self.split.refit()

    def action_split(self, by: int) -> None:
        """Give the run more room, up to the whole screen, or less."""
        if not self.preferences.now.detail:
            self.action_pane()
        else:
            self.split.step(by)

    def _keep_split(self, size: SplitSize) -> None:
        keep = partial(user_preferences.keep, self.session.settings, partial(replace, split=size))
        self.run_worker(keep, group="split")

    def action_raw(self) -> None:
        """Switch between the facts and the JSON as received."""
        self.pane.toggle_raw()

    def action_pane(self) -> None:
        """Show or hide the run beside the table."""
        shown = not self.preferences.now.detail
        self._show_pane(shown)
        self.preferences.change(lambda known: replace(known, detail=shown))

    def action_clear(self) -> None:
        """Leave the whole screen; else stop fetching; else take away marks, changes to the line, or the view."""
        if self.split.is_whole:
            self.split.take("normal")
        elif self.older_runs.stop():
            return
        elif self.table.marks:
            self.table.unmark()
        else:
            self.query_controller.clear()

    # How it shows what changed

    def _query_changed(self, before: TableQuery) -> None:
        self.table_loader.query_changed(before)
        self._show_query()

    def _show_query(self) -> None:
        self.table.highlight(SearchHighlight.of(self.query_controller.condition))
        self.filter_display.show_query(is_wide=self.app.size.width >= WIDE)

    @on(RunTable.Marked)
    def _show_remark(self) -> None:
        self.filter_display.show_remark(is_wide=self.app.size.width >= WIDE)
        self._offer(self._offered[0])

    def _offer(self, older: frozenset[str]) -> None:
        # Every key is looked up for the line of keys: not each second for nothing.
        if (offered := (older, bool(self.table.count or self.table.marks))) != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def _show_pane(self, shown: bool) -> None:
        # A class, not `display`: that would bring it back while there is no run at all.
        self.query_one("#runs").set_class(not shown, "-no-detail")

    async def _begin(self) -> None:
        await self.session.opened()
        self.table_loader.runs_changed()
        self.pane_loader.look()

    def _show_extent(self, extent: Extent) -> None:
        self.older_runs.extent = extent
        self.filter_display.counts.take(extent)
        self.filter_display.show_views()
        self._show_what_is_missing()

    def _show_what_is_missing(self) -> None:
        if (line := self.older_runs.line(has_counts=self.filter_display.has_count)) is None:
            return
        self.bar.show(line)
        self.table.end_with(self.older_runs.tail())
        if self.table.is_at_gap:
            self.pane_loader.look()
        self._offer(self.older_runs.possible)
        self._explain()

    def _older_runs_changed(self) -> None:
        self._show_what_is_missing()
        self.table_loader.runs_changed()
        self.pane_loader.look()

    def _explain(self) -> None:
        """Say why there are no rows, while there are none."""
        # Not before it is known: the pane would come later, and push the table aside.
        extent = self.older_runs.extent
        has_none = extent is not None and not extent.held
        self.query_one("#runs").set_class(has_none and not self.table.count, "-empty")
        self.table.say(UNREADABLE if self.session.vitals.storage_trouble else self.older_runs.nothing_here())
