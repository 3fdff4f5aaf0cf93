"""The Runs screen: urgent items, the query, the table of matching runs, and the run under the cursor."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.reactive import var
from textual.widget import Widget
from textual.widgets import Input

from app.console.session import GoToTab, OpenRun, Session
from app.console.troubles import UNREADABLE
from app.engine.text import safe_text
from app.runs.query import KeyName, list_terms, parse, suggestions
from app.runs.screen_actions import ON_A_RUN, RETRY, RUN_BINDINGS, RunActions, ids_of, keys_for, using_engine
from app.runs.screen_loader import RunsLoader
from app.runs.screen_older import OlderRuns
from app.runs.screen_views import (
    PreferenceChange,
    PreferencesWriter,
    TableQuery,
    View,
    first_query,
    problem_texts,
    replace_terms,
    view_named,
    views_of,
)
from storage.records import Action, RunRow
from storage.records.query import GROUPINGS, Grouping, RunGroup
from widgets.frame import Notice
from widgets.inbox import NeedsYou
from widgets.kit import hidden, keyless
from widgets.runs.filter import FilterBar, SearchInput, ViewTab
from widgets.runs.pane import OTHER_LINES, WIDE, RunPane, SplitView
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.console.sheets import PickerScreen
    from app.engine.engine import Engine

ON_ROWS: Final = ON_A_RUN | {"retry", "same_branch", "fold"}
"""Actions about the rows on show, which do nothing while other rows are on their way."""
GROUPED: Final = "By repository, by branch or off; most failures first"


class RunsScreen(RunActions):
    """Every run that matches the query, however many."""

    TAB = "runs"
    BINDINGS: ClassVar[list[BindingType]] = [
        *RUN_BINDINGS,
        Binding("slash", "search", "search", tooltip="Search words, or status:failed …", id="runs.search"),
        Binding("s", "pick_values('status')", "status", tooltip="Filter by status", id="runs.statuses"),
        keyless("pick_values('repo')", "repository", tooltip="Filter by repository", id="runs.repositories"),
        hidden("b", "pick_values('branch')", "branch", tooltip="Filter by branch", id="runs.branches"),
        hidden("t", "pick_dates", "when", tooltip="Filter by time", id="runs.dates"),
        keyless("same_branch", "this branch", tooltip="All runs on this run's branch", id="runs.same_branch"),
        keyless("pick_order", "sort", tooltip="Sort by another column", id="runs.order"),
        keyless("group", "group", tooltip=GROUPED, id="runs.group"),
        keyless("fold", "fold group", tooltip="Fold or unfold the group, like enter on its title", id="runs.fold"),
        keyless("fold_all", "fold all groups", tooltip="Fold or unfold all groups", id="runs.fold_all"),
        hidden("right_square_bracket", "step_view(1)", "next view", id="runs.next_view"),
        hidden("left_square_bracket", "step_view(-1)", "previous view", id="runs.prev_view"),
        keyless("views", "views", tooltip="Show a view, or delete a saved one", id="runs.views"),
        hidden("u", "undo", "undo", tooltip="Restore the view just deleted", id="runs.undo"),
        keyless("save_view", "save view", tooltip="Save the filter and order as a tab", id="runs.save_view"),
        hidden("asterisk", "mark_all", "mark all", tooltip="Mark all that match", id="runs.mark_all"),
        RETRY,
        keyless("export", "export", tooltip="Write the marked runs, or all that match, to a file", id="runs.export"),
        keyless("fetch_older", "fetch older runs", tooltip="Fetch older runs that match", id="runs.older"),
        keyless("pause(True)", "pause fetching", tooltip="Stop fetching older runs in the background", id="runs.pause"),
        keyless(
            "pause(False)", "resume fetching", tooltip="Fetch older runs in the background again", id="runs.resume"
        ),
        keyless("columns", "columns", tooltip="Choose columns, their order and width", id="runs.columns"),
        keyless("pane", "detail on/off", id="runs.pane"),
        hidden("escape", "clear", "clear", tooltip="Stop fetching, or clear marks, filter or view", id="runs.clear"),
    ]

    table_query: var[TableQuery] = var(TableQuery(), init=False)
    offered: var[object] = var(None, init=False, bindings=True)
    """The facts that the keys depend on: they are offered again after a change."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.preferences = PreferencesWriter(self)
        preferences = self.preferences.now
        query = first_query(session.settings, preferences)
        self.set_reactive(RunsScreen.table_query, query)
        self.bar = FilterBar(lambda line: parse(line, session.run_now()).spans)
        settings = session.settings
        now = session.run_now()
        self.table = RunTable(now, preferences.columns, confirmed_for=settings.history.confirmed_for)
        self.pane, self.needs_you = RunPane(now), NeedsYou(session.clock())
        self.split = SplitView(self.table, self.pane, has_pane=preferences.detail)
        self.loader = RunsLoader(self, self.split, query)
        self.older_runs = OlderRuns(self, self.loader, self.table)
        self._undo: PreferenceChange | None = None
        """Restores the last deleted view; None if there is nothing to restore, or the query changed since."""
        self._goes_to_rows = False
        """Whether the focus goes from the search line to the table with the rows that are on their way."""

    def compose_body(self) -> Iterable[Widget]:
        yield self.bar
        yield self.needs_you
        yield self.split

    def on_mount(self) -> None:
        self.session.engine_changed.subscribe(self, self.loader.engine_changed)
        self.session.pins_changed.subscribe(self, self.loader.pins_changed)
        self.session.inbox.changed.subscribe(self, lambda _: self._fit_needs_you())
        self.table.focus()
        self._show_query()
        if self.session.first is not None:
            self.loader.show_first(self.session.first)
            self._show_numbers()
        self.split.fit(self.app.size)
        self._explain_no_rows()
        self.run_worker(self.loader.begin)

    @property
    def focused_run_id(self) -> str | None:
        return row.run_id if (row := self.table.row) else None

    @property
    def chosen_ids(self) -> tuple[str, ...]:
        return tuple(self.table.marks) or super().chosen_ids

    @property
    def keys_now(self) -> dict[str, str]:
        if self.table.marks:
            return dict.fromkeys(("continue_run", "retry", "follow_run", "cancel_run"), "")
        row = self.table.row
        if row is None:
            return {}
        return keys_for(row.status, row.summary, is_final=row.is_final)

    @property
    def views(self) -> tuple[View, ...]:
        return views_of(self.session.settings.views, self.preferences.now.views)

    def go_to(self, target: str) -> None:
        """Show the runs that match a line, in the view that has it or among all runs."""
        if (view := next((view for view in self.views if view.query.split() == target.split()), None)) is not None:
            self.show_view(view)
        else:
            self.table_query = TableQuery(line=target, sort=self.table_query.sort)  # A link shows single runs.

    @property
    def bookmark(self) -> tuple[TableQuery, str | None]:
        return self.table_query, self.focused_run_id

    def return_to(self, bookmark: tuple[TableQuery, str | None]) -> None:
        self.table_query, run_id = bookmark
        if run_id is not None and run_id != self.focused_run_id:
            self.loader.seek(run_id)

    # Events and the clock

    def form_closed(self, action: "Action | None") -> None:
        """Poll the service after a form was sent, and put the cursor on the run that was started."""
        super().form_closed(action)
        if action is not None and action.kind == "run.start" and action.result_id is not None:
            self.loader.seek(action.result_id)

    def tick(self, _: datetime) -> None:
        now = self.session.run_now()
        self.table.tick(now, self.session.vitals.as_of)
        self.needs_you.tick(self.session.clock())
        self.loader.tick()
        self._show_missing()
        self.pane.tick(now, self.session.vitals.as_of)

    def show_trouble(self) -> None:
        super().show_trouble()
        self._explain_no_rows()

    def trouble(self) -> Notice | None:
        return super().trouble() if self.table.window.runs else None

    def on_resize(self, event: events.Resize) -> None:
        self.split.fit(event.size)
        self._fit_needs_you()

    def _fit_needs_you(self) -> None:
        items = self.session.inbox.items or () if self.session.settings.console.needs_you else ()
        self.needs_you.show_urgent(items, (self.app.size.height - OTHER_LINES) // 8)  # The runs get most of the lines.
        if self.needs_you.has_focus and not self.needs_you.display:
            self._focus_rows()

    @on(NeedsYou.Chosen)
    def open_item(self) -> None:
        if (item := self.needs_you.item) is not None:
            self.post_message(GoToTab("inbox", item.key))

    # Table

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "fetch_older":
                return self.older_runs.may_fetch
            case "pause":
                if parameters[0]:
                    return self.older_runs.may_pause
                return self.older_runs.is_paused
            case "undo":
                return self._undo is not None
        if action in ON_ROWS and (self.table.is_replacing or self.needs_you.has_focus):
            return False
        if action in ON_A_RUN | {"retry", "export", "mark_all"} and not (self.table.window.runs or self.table.marks):
            return False
        return super().check_action(action, parameters)

    def on_run_table_window_requested(self) -> None:
        self.loader.load()

    @on(RunTable.Highlighted)
    def show_run(self) -> None:
        self._explain_row()
        self.loader.load_run()
        self._offer_keys()

    @on(RunTable.Replaced)
    def focus_new_rows(self) -> None:
        if self._goes_to_rows:
            self._focus_rows()
        elif not self.bar.line.has_focus:
            self.refresh_bindings()  # Row keys may have been disabled while the rows were replaced.

    @on(RunTable.Chosen)
    def open_entry(self, message: RunTable.Chosen) -> None:
        match message.entry:
            case RunRow(run_id=run_id):
                self.post_message(OpenRun(run_id))
            case RunGroup() as group:
                self._fold(group)
            case gap:
                self.older_runs.fetch(gap or self.older_runs.below)

    @on(RunTable.SortRequested)
    def sort_rows(self, message: RunTable.SortRequested) -> None:
        self.table_query = replace(self.table_query, sort=message.sort)

    @on(RunTable.Marked)
    def show_marks(self) -> None:
        self._show_remark()
        self._offer_keys()

    # Actions on runs

    def action_continue_run(self) -> None:
        if self.table.marks:
            self.show_form("continue")
        else:
            super().action_continue_run()

    @using_engine("pick")
    async def action_mark_all(self, engine: "Engine") -> None:
        ids = await ids_of(self.session, engine, self.loader.condition, self.table_query.sort)
        self.table.mark(ids, is_marked=not all(run_id in self.table.marks for run_id in ids))

    @using_engine("form")
    async def action_export(self, engine: "Engine") -> None:
        from app.runs.screen_export import show_export

        await show_export(self, engine, self.table_query, tuple(self.table.marks))

    def was_sent(self, run_ids: tuple[str, ...]) -> None:
        """Unmark the sent runs; skipped runs stay marked for another attempt."""
        super().was_sent(run_ids)
        self.table.mark(run_ids, is_marked=False)

    # Query

    def watch_table_query(self, before: TableQuery, query: TableQuery) -> None:
        self._undo = None
        self.preferences.change(lambda known: known.shown(query))
        self.loader.query_changed(before, query)
        self._show_query()

    def set_line(self, line: str) -> None:
        self.table_query = replace(self.table_query, line=line, cursor=None)

    def show_view(self, view: View) -> None:
        """Show a view, in the current order unless it has its own."""
        self.table_query = TableQuery.of(view, self.table_query.sort, self.table_query.grouping)

    def action_same_branch(self) -> None:
        if (row := self.table.row) is not None:
            branches = (row.branch_name,) if row.branch_name else ()
            self.set_line(" ".join((*list_terms("repo", (row.repository,)), *list_terms("branch", branches))))

    def action_group(self) -> None:
        """Switch to the next grouping; after the last one, remove it."""
        grouping = self.table_query.grouping
        following = GROUPINGS[GROUPINGS.index(grouping.by) + 1 :] if grouping else GROUPINGS
        self.table_query = replace(self.table_query, grouping=Grouping(following[0]) if following else None)

    def action_fold(self) -> None:
        if (group := self.table.window.group_at(self.table.cursor)) is not None:
            self._fold(group)

    def _fold(self, group: RunGroup) -> None:
        if (grouping := self.table_query.grouping) is not None:
            grouping = replace(grouping, others=grouping.others ^ {group.name})
            self.table_query = replace(self.table_query, grouping=grouping)

    def action_fold_all(self) -> None:
        if (grouping := self.table_query.grouping) is not None:
            grouping = replace(grouping, is_folded=not grouping.is_folded, others=frozenset())
            self.table_query = replace(self.table_query, grouping=grouping)

    def action_view(self, index: int) -> None:
        self.show_view(self.views[index % len(self.views)])

    def action_step_view(self, step: int) -> None:
        self.action_view(self.bar.views.current + step)

    def action_clear(self) -> None:
        """Stop fetching; otherwise remove marks, changes to the line, or the view."""
        query = self.table_query
        if self.older_runs.stop():
            return
        if self.table.marks:
            self.table.mark(self.table.marks, is_marked=False)
        elif query.is_changed:
            self.set_line(query.view.query.strip())
        else:
            self.table_query = TableQuery(sort=query.sort, grouping=query.grouping)

    # Query line

    def action_search(self) -> None:
        """Focus the line behind a blank: typing begins a new term."""
        line = self.bar.line
        line.focus()
        line.set_line(f"{line.value.rstrip()} ".lstrip())
        self.loader.load_names()

    @on(Input.Changed, "SearchInput")
    def search_line(self) -> None:
        # Immediately, without a pause, since the next key cancels a running search.
        line = self.bar.line
        if line.has_focus:
            self._goes_to_rows = False
            self.table_query = replace(self.table_query, line=line.value, cursor=line.cursor_position)
            matches = suggestions(line.value, line.cursor_position, self.loader.names) if line.value else ()
            # Names that cannot be typed are not suggested.
            self.bar.offer(tuple(each for each in matches if safe_text(each.insert) == each.insert))

    @on(SearchInput.Left)
    def leave_line(self, message: SearchInput.Left) -> None:
        self.set_line((self.table_query.view.query if message.is_cleared else self.bar.line.value).strip())
        self.bar.offer(())
        if self.table.is_replacing and not message.is_cleared:
            self._goes_to_rows = True
        else:
            self._focus_rows()

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        if event.widget is self.bar.line and self.table_query.cursor is not None:
            self.set_line(self.bar.line.value.strip())
            self.bar.offer(())

    def _focus_rows(self) -> None:
        self._goes_to_rows = False
        self.set_focus(self.table)  # Immediately; `focus()` would act too late.

    # Sheets

    async def _pick(
        self, sheet: "PickerScreen[Any]", keys: set[KeyName], terms: Callable[[Any], Iterable[str]]
    ) -> None:
        """Let the user choose, and replace the terms with these keys by the chosen ones."""
        if (choice := await self.app.push_screen_wait(sheet)) is not None:
            line = replace_terms(self.table_query.line, keys, terms(choice))
            now = self.session.run_now()
            before = parse(self.table_query.line, now)
            after = parse(line, now)
            # A choice that changes nothing does not rewrite short or quoted terms.
            if before.filter != after.filter or before.problems:
                self.set_line(line)

    @using_engine("pick")
    async def action_pick_values(self, engine: "Engine", key: KeyName) -> None:
        from app.runs.screen_pickers import value_sheet

        keys: set[KeyName] = {"status", "is"} if key == "status" else {key}
        sheet = await value_sheet(engine.cache, self.loader.condition, key, self.table.row)
        await self._pick(sheet, keys, lambda picked: list_terms(key, *picked))

    @work
    async def action_pick_dates(self) -> None:
        from app.runs.screen_pickers import DatesPicker, date_terms

        await self._pick(DatesPicker(self.table_query.line, self.session.run_now()), {"since", "until"}, date_terms)

    @work
    async def action_pick_order(self) -> None:
        from app.runs.screen_pickers import order_sheet

        if (sort := await self.app.push_screen_wait(order_sheet(self.table_query.sort))) is not None:
            self.table_query = replace(self.table_query, sort=sort)

    @work
    async def action_columns(self) -> None:
        from app.runs.screen_pickers import ColumnPicker

        if (choice := await self.app.push_screen_wait(ColumnPicker(self.table))) is not None:
            self.preferences.change(lambda known: replace(known, columns=choice))
            self.split.fit()

    # Saved views

    @work
    async def action_views(self) -> None:
        from app.runs.screen_pickers import view_picker

        if (choice := await self.app.push_screen_wait(view_picker(self.views, self.table_query.view))) is None:
            return
        view, is_forgotten = choice
        if not is_forgotten:
            self.show_view(view)
        elif view.origin == "saved":
            index, saved = next(pair for pair in enumerate(self.preferences.now.views) if pair[1].name == view.name)
            self._undo = lambda known: known.with_view(saved, index)
            self.preferences.change(lambda known: known.without_view(view.name))
            self.session.notify(f"Deleted the view {safe_text(view.name)}. Press u to undo.")
            self._show_views()
        else:
            origin = "in the configuration file: remove it there"
            if view.origin == "built in":
                origin = "built in"
            self.session.notify(f"{safe_text(view.name)} is {origin}.", severity="warning")

    def action_undo(self) -> None:
        if self._undo is not None:
            self.preferences.change(self._undo)
            self._undo = None
            self._show_views()

    @work
    async def action_save_view(self) -> None:
        from app.runs.screen_pickers import ViewSaver

        self.set_line(self.table_query.line.strip())  # Interpret the line as a finished one, not as one being typed.
        if problems := self.table_query.problems(self.session.run_now(), self.loader.statuses):
            self.session.notify(f"Not saved: {problems[0]}", severity="warning")
            return
        if (view := await self.app.push_screen_wait(ViewSaver(self.table_query, self.views))) is not None:
            text = f"Saved as the view {safe_text(view.name)}."
            self.preferences.change(lambda known: known.with_view(view), text)
            self.show_view(view_named(self.views, view.name))
            self._show_views()

    # Older runs, and the pane

    def action_fetch_older(self) -> None:
        self.older_runs.fetch()

    @using_engine("pause")
    async def action_pause(self, engine: "Engine", is_paused: bool) -> None:
        await engine.backfill.pause(is_paused=is_paused)
        self._older_runs_changed()

    def action_pane(self) -> None:
        self.split.has_pane = not self.split.has_pane
        self.preferences.change(lambda known: replace(known, detail=self.split.has_pane))

    # Display

    def _show_query(self) -> None:
        query = self.table_query
        condition = self.loader.condition
        self.table.words = tuple(condition.search.casefold().split())
        if query.cursor is None:
            self.bar.line.set_line(query.line, 0)
        self.table.sort = query.sort
        self._show_views()
        self.bar.facets.condition = replace(condition, search="")  # Typing a word does not repaint the views.
        self._show_remark()

    @on(RunsLoader.ViewsCounted)
    def _show_views(self) -> None:
        bar = self.bar.views
        counts = self.loader.counts
        views = self.views
        bar.tabs = tuple(ViewTab(safe_text(view.name, limit=30), counts.get(view.query)) for view in views)
        current = self.table_query.view.name
        bar.current = next((index for index, view in enumerate(views) if view.name == current), 0)
        bar.is_changed = self.table_query.is_changed

    def _show_remark(self) -> None:
        count = len(self.table.marks)
        cap = self.session.settings.console.send_cap
        if problems := self.table_query.problems(self.session.run_now(), self.loader.statuses):
            self.bar.remark = tuple(problem_texts(problems[0])), "bad"
        elif count:
            keys = ""
            if self.app.size.width >= WIDE:
                keys = " · c continue · T retry · f follow · X cancel · esc unmark"
            capped = f" · sent to {cap:,} at a time" if count > cap else ""
            self.bar.remark = (safe_text(f"■ {count:,} marked{capped}{keys}"),), "busy"
        else:
            self.bar.remark = (), "quiet"

    @on(RunsLoader.Counted)
    def _show_numbers(self) -> None:
        self.loader.views = self.views
        self.loader.load_counts()
        self._show_views()
        self._show_missing()

    def _show_missing(self) -> None:
        if (line := self.older_runs.line()) is not None:
            self.bar.extent = line
            self.table.show_missing(self.older_runs.lines())
            self._explain_row()
            self._offer_keys()
            self._explain_no_rows()

    def _explain_no_rows(self) -> None:
        # Only once the extent is known: the pane would come later, and push the table aside.
        extent = self.loader.extent
        self.split.set_class(extent is not None and not extent.held and not self.table.window.runs, "-empty")
        self.table.notice = UNREADABLE if self.session.vitals.storage_trouble else self.older_runs.nothing_here()

    def _explain_row(self) -> None:
        if self.table.row is None:
            self.pane.placeholder = self.older_runs.explanation(self.table.group)

    @on(OlderRuns.Changed)
    def _older_runs_changed(self) -> None:
        self._show_missing()
        self.loader.runs_changed()
        self.loader.load_run()

    def _offer_keys(self) -> None:
        older = self.older_runs
        is_any = bool(self.table.window.runs or self.table.marks)
        self.offered = older.may_fetch, older.may_pause, older.is_paused, is_any, self.keys_now
