"""The query of the runs table, and all changes to it: the line, the sheets, the views and the order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from textual.binding import Binding

from app.config import ViewSettings
from app.console.runs.query_line import limit_in, listed, replaced, settled
from app.console.runs.screen_context import ScreenContext
from app.console.runs.views import TableQuery, View, chosen_order, first_query, named, views_of
from app.query import Vocabulary, parse, suggestions
from app.query.terms import KeyName
from app.text import safe_text
from storage.records import RunFilter, RunRow, RunSort
from storage.records.grouping import GROUPINGS, Grouping, RunGroup
from storage.records.query import SortColumn
from widgets.filter.chips import SheetRequested, ViewBar
from widgets.filter.search import SearchSuggestion, StyledSpan
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.console.runs.pickers import Limits
    from app.console.runs.preferences import PreferenceChange, PreferencesWriter
    from app.console.sheets.mark_picker import Picked
    from app.engine import Engine

STATUS_ORDER: Final = ("queued", "working", "completed", "failed")
"""Offered in this order, even while no run has them."""
GROUPED: Final = "By repository, by branch, not at all; the worst first"

QueryRequest = ViewBar.Picked | SheetRequested | RunTable.GroupToggled | RunTable.SortRequested
"""The widgets' requests to the query."""

_hidden = partial(Binding, show=False)
QUERY_BINDINGS: Final = (
    Binding("slash", "search", "search", key_display="/", tooltip="Words, or status:failed …", id="runs.search"),
    Binding("s", "query('status')", "status", tooltip="Show only some statuses", id="runs.statuses"),
    _hidden("R", "query('repository')", "repository", tooltip="Show only some repositories", id="runs.repositories"),
    _hidden("B", "query('branch')", "branch", tooltip="Show only some branches", id="runs.branches"),
    _hidden("t", "query('started')", "when", tooltip="Show only a stretch of time", id="runs.dates"),
    _hidden("b", "query('same_branch')", "this branch", tooltip="All runs on this run's branch", id="runs.same_branch"),
    _hidden("o", "query('order')", "sort", tooltip="Sort by another column", id="runs.order"),
    _hidden("O", "query('reverse')", "turn round", tooltip="Reverse the order", id="runs.turn_order"),
    _hidden("number_sign", "query('group')", "group", key_display="#", tooltip=GROUPED, id="runs.group"),
    _hidden("z", "query('fold')", "fold group", tooltip="Or unfold it, like enter on its head", id="runs.fold"),
    _hidden("Z", "query('fold_all')", "fold all groups", tooltip="Or unfold all", id="runs.fold_all"),
    _hidden("right_square_bracket", "query('next_view')", "next view", key_display="]", id="runs.next_view"),
    _hidden("left_square_bracket", "query('view_before')", "previous view", key_display="[", id="runs.prev_view"),
    _hidden("V", "query('views')", "views", tooltip="All views; those saved here can be forgotten", id="runs.views"),
    _hidden("u", "query('undo')", "undo", tooltip="Bring back the view that was just forgotten", id="runs.undo"),
    _hidden("ctrl+s", "query('save_view')", "save view", tooltip="Keep what is shown as a tab", id="runs.save_view"),
)


class QueryController:
    """Holds the query of one table."""

    def __init__(
        self,
        context: ScreenContext,
        preferences: "PreferencesWriter",
        *,
        row: Callable[[], RunRow | None],
        group: Callable[[], RunGroup | None] = lambda: None,
        changed: Callable[[TableQuery], None],
    ) -> None:
        """Start with the last view and order; `changed` is called after each change with the query before it."""
        self.now = first_query(context.session.settings, preferences.now)
        self._context = context
        self._session = context.session
        self._preferences = preferences
        self._row = row
        self._group = group
        self._changed = changed
        self._vocabulary = Vocabulary()
        self._undo: PreferenceChange | None = None
        """Brings back the view that was deleted last. None: there is none, or the query changed since."""
        self._actions: dict[str, Callable[[], object]] = {
            "status": lambda: context.with_engine(self._ask_statuses, "pick"),
            "repository": lambda: context.with_engine(self._ask_repositories, "pick"),
            "branch": lambda: context.with_engine(self._ask_branches, "pick"),
            "started": self._ask_dates,
            "order": self._ask_order,
            "views": self._ask_views,
            "save_view": self._ask_name,
            "undo": self._bring_view_back,
            "next_view": lambda: self._step_view(1),
            "view_before": lambda: self._step_view(-1),
            "reverse": self._reverse,
            "group": self._group_otherwise,
            "fold": self._fold,
            "fold_all": self._fold_all,
            "same_branch": self._show_branch_of_run,
        }

    @property
    def views(self) -> tuple[View, ...]:
        """All views, in the order of their tabs."""
        return views_of(self._session.settings.views, self._preferences.now.views)

    @property
    def condition(self) -> RunFilter:
        """The filter as of now."""
        return self.now.condition(self._session.run_now())

    def spans(self, line: str) -> tuple[StyledSpan, ...]:
        """The parts of a line and their kinds."""
        return tuple((span.start, span.end, span.kind) for span in parse(line, self._session.run_now()).spans)

    def do(self, name: str) -> None:
        """Run an action of `QUERY_BINDINGS`."""
        self._actions[name]()

    def is_possible(self, name: str) -> bool:
        """Whether the action has something to act on."""
        return name != "undo" or self._undo is not None

    def requested(self, message: QueryRequest) -> None:
        """Change the query as a widget was asked to."""
        match message:
            case ViewBar.Picked(index):
                self.show_view(self.views[index])
            case SheetRequested(name):
                self.do(name)
            case RunTable.GroupToggled(name):
                self.toggle_group(name)
            case RunTable.SortRequested(column):
                self.sort_by(column)

    # The line

    def show(self, query: TableQuery) -> None:
        """Show another query, and remember its view and order."""
        before, self.now, self._undo = self.now, query, None
        group = str(query.grouping or "")
        self._preferences.change(lambda known: replace(known, view=query.view.name, sort=query.sort, group=group))
        self._changed(before)

    def set_line(self, line: str) -> None:
        """Replace the line."""
        self.show(replace(self.now, line=line, cursor=None))

    def set_terms(self, keys: set[KeyName], new: Iterable[str]) -> None:
        """Put new terms into the line, instead of those with these keys."""
        self.set_line(replaced(self.now.line, keys, new))

    def type(self, line: str, cursor: int) -> None:
        """Apply the line while it is typed."""
        self.show(replace(self.now, line=line, cursor=cursor))

    def leave(self, line: str, cursor: int) -> None:
        """Apply the line after typing: the rows on show stay."""
        self.set_line(settled(line, cursor).strip())

    def reset_line(self) -> None:
        """Restore the line of the view."""
        self.set_line(self.now.view.query.strip())

    def clear(self) -> None:
        """Undo the changes to the line; without any, show all runs."""
        if self.now.is_changed:
            self.reset_line()
        else:
            self.show(TableQuery(sort=self.now.sort, grouping=self.now.grouping))

    def _show_branch_of_run(self) -> None:
        row = self._row()
        if row is not None:
            branches = (row.branch_name,) if row.branch_name else ()
            self.set_line(" ".join((*listed("repo", (row.repository,)), *listed("branch", branches))))

    # Suggestions

    def learn(self) -> None:
        """Read the names to suggest."""
        if self._session.engine is not None:
            self._context.start(partial(self._learn, self._session.engine), exclusive=True, group="vocabulary")

    def offers(self, line: str, cursor: int) -> tuple[SearchSuggestion, ...]:
        """Suggest what could come next, except names that cannot be typed."""
        found = suggestions(line, cursor, self._vocabulary) if line else ()
        return tuple(
            SearchSuggestion(s.start, s.end, safe_text(s.insert), s.about)
            for s in found
            if safe_text(s.insert) == s.insert
        )

    async def _learn(self, engine: "Engine") -> None:
        cache = engine.cache
        self._vocabulary = Vocabulary(
            await cache.repositories(), await cache.branches(RunFilter()), await cache.known_statuses()
        )

    # The order and the views

    def sort_by(self, column: SortColumn) -> None:
        """Sort by a column; by the current one: reverse the order."""
        self._set_order(chosen_order(column, self.now.sort))

    def _reverse(self) -> None:
        self._set_order(RunSort(self.now.sort.column, not self.now.sort.descending))

    def _group_otherwise(self) -> None:
        """Group by the next kind, and after the last one by none."""
        by = (None, *GROUPINGS)
        grouping = self.now.grouping
        following = by[(by.index(grouping.by if grouping else None) + 1) % len(by)]
        self.show(replace(self.now, grouping=Grouping(following) if following else None))

    def _fold(self) -> None:
        if (group := self._group()) is not None:
            self.toggle_group(group.name)

    def _fold_all(self) -> None:
        if self.now.grouping is not None:
            self.show(replace(self.now, grouping=self.now.grouping.reversed))

    def toggle_group(self, name: str) -> None:
        """Fold or unfold a group."""
        if self.now.grouping is not None:
            self.show(replace(self.now, grouping=self.now.grouping.toggled(name)))

    def show_view(self, view: View) -> None:
        """Show a view, in the current order unless it has its own."""
        self.show(TableQuery.of(view, self.now.sort, self.now.grouping))

    def show_query(self, line: str) -> None:
        """Show a line, in the view that has it or else among all runs."""
        view = next((view for view in self.views if view.query.split() == line.split()), None)
        if view is not None:
            self.show_view(view)
        else:
            self.show(TableQuery(line=line, sort=self.now.sort))  # Without groups: the link is about single runs.

    @property
    def view_index(self) -> int:
        """The index of the current view among all; 0 if it is gone."""
        return next((index for index, view in enumerate(self.views) if view.name == self.now.view.name), 0)

    def _step_view(self, step: int) -> None:
        views = self.views
        self.show_view(views[(self.view_index + step) % len(views)])

    # The sheets

    def _ask_dates(self) -> None:
        from app.console.runs.pickers import DatesPicker

        def picked(limits: "Limits | None") -> None:
            if limits is not None:
                new = [f"{key}:{text}" for key, text in zip(("since", "until"), limits, strict=True) if text]
                self.set_terms({"since", "until"}, new)

        line = self.now.line
        self._context.push_screen(
            DatesPicker(limit_in(line, "since"), limit_in(line, "until"), self._session.run_now()), picked
        )

    def _ask_order(self) -> None:
        from app.console.runs.pickers import OrderPicker

        self._context.push_screen(OrderPicker(self.now.sort), self._set_order)

    def _set_order(self, sort: RunSort | None) -> None:
        if sort is not None:
            self.show(replace(self.now, sort=sort))

    def _ask_views(self) -> None:
        from app.console.runs.view_sheets import ViewPicker

        def picked(name: str | None) -> None:
            if name is not None:
                self.show_view(named(self.views, name))

        sheet = ViewPicker(self.views, self.now.view, self._forget_view, self._bring_view_back)
        self._context.push_screen(sheet, picked)

    def _forget_view(self, view: View) -> None:
        saved = self._preferences.now.views
        index = next(index for index, other in enumerate(saved) if other.name == view.name)
        self._undo = lambda known: known.with_view(saved[index], index)
        self._preferences.change(lambda known: known.without_view(view.name))
        self._session.notify(f"Forgot the view {safe_text(view.name)}; u brings it back.")
        self._changed(self.now)

    def _bring_view_back(self) -> tuple[View, ...]:
        if self._undo is not None:
            self._preferences.change(self._undo)
            self._undo = None
            self._changed(self.now)
        return self.views

    def _ask_name(self) -> None:
        from app.console.runs.view_sheets import ViewSaver

        if problems := self.now.query(self._session.run_now()).problems:
            self._session.notify(f"Not saved: {problems[0]}", severity="warning")
            return
        self._context.push_screen(ViewSaver(self.now, self.views), self._save_view)

    def _save_view(self, view: ViewSettings | None) -> None:
        if view is not None:
            said = f"Saved as the view {safe_text(view.name)}."
            self._preferences.change(lambda known: known.with_view(view), partial(self._session.notify, said))
            self.show_view(named(self.views, view.name))

    async def _ask_statuses(self, engine: "Engine") -> None:
        from app.console.sheets.mark_picker import MarkPicker

        condition = self.condition
        found = await engine.cache.status_counts(condition)
        others = sorted({*found, *condition.statuses, *condition.not_statuses} - set(STATUS_ORDER))
        counts = {status: found.get(status, 0) for status in (*STATUS_ORDER, *others)}

        def picked(statuses: "Picked | None") -> None:
            if statuses is not None:
                self.set_terms({"status", "is"}, listed("status", *statuses))

        sheet = MarkPicker("Show status", counts, condition.statuses, condition.not_statuses)
        self._context.push_screen(sheet, picked)

    async def _ask_repositories(self, engine: "Engine") -> None:
        condition, names = self.condition, await engine.cache.repositories()
        self._ask_values("repo", "Show repository", names, (condition.repositories, condition.not_repositories))

    async def _ask_branches(self, engine: "Engine") -> None:
        condition = self.condition
        names = await engine.cache.branches(replace(condition, branches=(), not_branches=()))
        self._ask_values("branch", "Show branch", names, (condition.branches, condition.not_branches))

    def _ask_values(self, key: KeyName, title: str, names: Sequence[str], before: "Picked") -> None:
        from app.console.runs.pickers import ValuePicker

        def picked(values: "Picked | None") -> None:
            if values is not None:
                self.set_terms({key}, listed(key, *values))

        self._context.push_screen(ValuePicker(title, names, *before), picked)
