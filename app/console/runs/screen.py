"""The Runs screen: the query, the table of matching runs, and the run under the cursor."""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import ClassVar, Final

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from app.console.base.screen import BaseScreen
from app.console.messages import OpenRun
from app.console.runs.bulk_actions import BULK_BINDINGS, BulkActions
from app.console.runs.filter_display import ExtentDisplay, FilterDisplay, LineChange
from app.console.runs.loaders import PaneLoader
from app.console.runs.older_runs import OLDER_BINDINGS, OlderRuns
from app.console.runs.preferences import PreferencesWriter
from app.console.runs.query_controller import QUERY_BINDINGS, QueryController, QueryRequest
from app.console.runs.run_actions import NEEDS_NO_RUN, RUN_BINDINGS, RunActions
from app.console.runs.screen_context import ScreenContext
from app.console.runs.split import SPLIT_BINDINGS, SplitView
from app.console.runs.table_loader import TableLoader
from app.console.runs.views import TableQuery
from app.console.session import Session
from widgets.after_refresh import after_refresh
from widgets.cursor_view import CURSOR_ACTIONS
from widgets.filter.bar import FilterBar
from widgets.filter.chips import SheetRequested, ViewBar
from widgets.filter.search import SearchInput
from widgets.frame.notice import Notice
from widgets.runs.columns import ColumnChoice
from widgets.runs.pane import RunPane
from widgets.runs.table import RunTable

_hidden = partial(Binding, show=False)
ROW_ACTIONS: Final = CURSOR_ACTIONS | {
    *("choose", "mark", "stretch(1)", "stretch(-1)"),
    *("query('same_branch')", "query('fold')", "query('fold_all')"),
}
"""The actions about rows; so are those on runs, except the ones that need no run."""
NO_ROW_ACTIONS: Final = frozenset(f"run('{name}')" for name in (*NEEDS_NO_RUN, "mark_all", "export"))


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
        _hidden("i", "split('raw')", "raw JSON", tooltip="Facts, or the run as received", id="run.raw"),
        _hidden("d", "split('pane')", "detail on/off", id="runs.pane"),
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
        self.body = Container(self.table, self.pane, id="runs")
        self.split = SplitView(context, self.preferences, self.body, self.table, self.pane)
        self.bulk_actions = BulkActions(context, self.query_controller, self.table)
        self.filter_display = FilterDisplay(context, self.bar, self.table, self.query_controller, self.bulk_actions)
        self.extent_display = ExtentDisplay(
            session, self.bar, self.body, self.table, self.older_runs, self.filter_display, self._extent_shown
        )
        self.table_loader = TableLoader(
            context, self.table, lambda: self.query_controller.now, show_extent=self.extent_display.take
        )
        self.run_actions = RunActions(context, lambda: self.focused_run_id, self.table_loader.seek)
        explanation = partial(self.filter_display.explanation, self.older_runs.explanation)
        self.pane_loader = PaneLoader(context, self.pane, explanation, self.table_loader.figures)
        self._older_possible: frozenset[str] = frozenset()
        """The actions on older runs that were possible when the keys were offered last."""
        self._had_runs = False
        """Whether there was a run to act on then."""

    def compose_body(self) -> Iterable[Widget]:
        """Compose the filters, the table, and the run beside or below it."""
        yield self.bar
        yield self.body

    def on_mount(self) -> None:
        """Show the cached rows, then read with the engine as soon as it is open."""
        self.session.engine_changed.subscribe(self, self.table_loader.engine_changed)
        self.session.engine_changed.subscribe(self, self.pane_loader.engine_changed)
        self.table.focus()
        self.split.begin(self.app.size)
        self.filter_display.show_query()
        if self.session.first is not None:
            self.table_loader.show_first(self.session.first)
        self.extent_display.explain()
        for loader in (self.table_loader, self.pane_loader):
            self.run_worker(loader.begin)

    @property
    def focused_run_id(self) -> str | None:
        """The run under the cursor."""
        return row.run_id if (row := self.table.row) else None

    def go_to(self, target: str) -> None:
        """Show the runs that match a query."""
        self.query_controller.show_query(target)

    # Events and the clock

    def tick(self, _: datetime) -> None:
        """Update the ages on show, and what came in the background."""
        now = self.session.run_now()
        self.table.tick(now, self.as_of)
        self.table_loader.tick()
        self.extent_display.show()
        # In a frame of its own: with the header's age in one, everything between the two lines would be painted.
        if not self.pane.rests(now, self.as_of):
            after_refresh(self, self.pane.tick, now, self.as_of)

    def show_trouble(self) -> None:
        """Show trouble in the banner, or in the table while it is empty."""
        super().show_trouble()
        self.extent_display.explain()

    def trouble(self) -> Notice | None:
        """The banner's notice, unless the table shows it."""
        return super().trouble() if self.table.count else None

    def on_resize(self, event: events.Resize) -> None:
        """Put the run beside the table, below it, or on two lines."""
        self.split.fit(event.size)

    # Messages of the table and the filter bar

    @on(RunTable.WindowRequested)
    def _on_window_requested(self) -> None:
        self.table_loader.look()

    @on(RunTable.Highlighted)
    def _on_highlighted(self) -> None:
        self.pane_loader.look()
        self._offer_keys(self._older_possible)

    @on(RunTable.Chosen)
    def _on_chosen(self, message: RunTable.Chosen) -> None:
        self.post_message(OpenRun(message.run_id))

    @on(RunTable.GapChosen)
    def _on_gap_chosen(self, message: RunTable.GapChosen) -> None:
        self.older_runs.fetch(message.gap or self.older_runs.below)

    @on(RunTable.Arranged)
    def _on_arranged(self, message: RunTable.Arranged) -> None:
        self.preferences.keep_columns(message.choice)
        self.split.refit()

    @on(RunTable.RangeRequested)
    def _on_range_requested(self, message: RunTable.RangeRequested) -> None:
        self.bulk_actions.mark_range(message.first_id, message.last_id)

    @on(Input.Changed, "SearchInput")
    @on(SearchInput.Left)
    @on(SearchInput.Cleared)
    def _on_line_changed(self, message: LineChange) -> None:
        self.filter_display.line_changed(message)

    @on(ViewBar.Picked)
    @on(SheetRequested)
    @on(RunTable.GroupToggled)
    @on(RunTable.SortRequested)
    def _on_query_requested(self, message: QueryRequest) -> None:
        self.query_controller.requested(message)

    # Its keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable what cannot be done."""
        if action == "run":
            return self.run_actions.is_possible(str(parameters[0]), has_runs=bool(self.table.count or self.table.marks))
        if action == "older":
            return self.older_runs.is_possible(str(parameters[0]))
        if action == "query":
            return self.query_controller.is_possible(str(parameters[0]))
        return super().check_action(action, parameters)

    async def action_run(self, name: str) -> None:
        """Act on several runs if that is possible, otherwise on the run under the cursor."""
        if not self.bulk_actions.do(name):
            await self.run_actions.do(name)

    def action_search(self) -> None:
        """Focus the line."""
        self.filter_display.search()

    def action_query(self, name: str) -> None:
        """Change the query, or open the sheet that does."""
        self.query_controller.do(name)

    def action_older(self, name: str) -> None:
        """Fetch older runs, or pause the fetching in the background."""
        self.older_runs.do(name)

    def action_columns(self) -> None:
        """Choose the columns."""
        from app.console.runs.column_sheet import ColumnPicker

        def picked(choice: ColumnChoice | None) -> None:
            if choice is not None:
                self.post_message(RunTable.Arranged(choice))

        table = self.table
        sheet = ColumnPicker(table.choice, self.query_controller.now.sort, table.width_of, table.take_columns)
        self.app.push_screen(sheet, picked)

    def action_split(self, name: str) -> None:
        """Give the run more room or less, hide it or show it again, or switch to its JSON."""
        self.split.do(name)

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

    # Showing changes

    def _query_changed(self, before: TableQuery) -> None:
        self.table_loader.query_changed(before)
        self.filter_display.show_query()

    @on(RunTable.Marked)
    def _show_remark(self) -> None:
        self.filter_display.show_remark()
        self._offer_keys(self._older_possible)

    def _offer_keys(self, older_possible: frozenset[str]) -> None:
        # Only after a change: a refresh looks every key up.
        has_runs = bool(self.table.count or self.table.marks)
        if older_possible != self._older_possible or has_runs != self._had_runs:
            self._older_possible, self._had_runs = older_possible, has_runs
            self.refresh_bindings()

    def _extent_shown(self) -> None:
        if self.table.is_at_gap:
            self.pane_loader.look()
        self._offer_keys(self.older_runs.possible)

    def _older_runs_changed(self) -> None:
        self.extent_display.show()
        self.table_loader.runs_changed()
        self.pane_loader.look()
