"""Finding runs: views, pickers that write into the line, and the order."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType

from app.config import ViewSettings
from app.console.runs.facets import written_limit
from app.console.runs.line import RunLineScreen
from app.console.runs.query_line import listed
from app.console.runs.views import TableQuery, View, chosen_order, named
from app.query.terms import KeyName
from app.text import safe_text
from storage.errors import StorageError
from storage.records import RunSort
from widgets.filter.chips import FacetBar, StatusCounts, ViewBar
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.engine import Engine


class RunFindingScreen(RunLineScreen):
    """A screen on which runs are found by choosing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "statuses", "status", tooltip="Show only some statuses", id="runs.statuses"),
        Binding(
            "R", "repositories", "repository", show=False, tooltip="Show only some repositories", id="runs.repositories"
        ),
        Binding("B", "branches", "branch", show=False, tooltip="Show only some branches", id="runs.branches"),
        Binding("t", "dates", "when", show=False, tooltip="Show only a stretch of time", id="runs.dates"),
        Binding(
            "b",
            "same_branch",
            "this branch",
            show=False,
            tooltip="All runs on this run's branch",
            id="runs.same_branch",
        ),
        Binding("o", "order", "sort", show=False, tooltip="Sort by another column", id="runs.order"),
        Binding(
            "O", "turn_order", "turn round", show=False, tooltip="The order the other way round", id="runs.turn_order"
        ),
        Binding("right_square_bracket", "view(1)", "next view", show=False, key_display="]", id="runs.next_view"),
        Binding("left_square_bracket", "view(-1)", "previous view", show=False, key_display="[", id="runs.prev_view"),
        Binding(
            "V", "views", "views", show=False, tooltip="All views; those saved here can be forgotten", id="runs.views"
        ),
        Binding(
            "ctrl+s", "save_view", "save view", show=False, tooltip="Keep what is shown as a tab", id="runs.save_view"
        ),
    ]

    # What it hears

    @on(RunTable.SortRequested)
    def _on_sort_wanted(self, message: RunTable.SortRequested) -> None:
        self.want(replace(self.wanted, sort=chosen_order(message.column, self.wanted.sort)))

    @on(ViewBar.Picked)
    def _on_view_picked(self, message: ViewBar.Picked) -> None:
        self._show_view(self.views[message.index])

    @on(ViewBar.ListRequested)
    def _on_views_wanted(self) -> None:
        self.action_views()

    @on(ViewBar.NewRequested)
    def _on_new_view_wanted(self) -> None:
        self.action_save_view()

    @on(FacetBar.Clicked)
    async def _on_facet_clicked(self, message: FacetBar.Clicked) -> None:
        actions = {"status": "statuses", "repository": "repositories", "branch": "branches", "started": "dates"}
        await self.run_action(actions[message.name])

    @on(StatusCounts.Clicked)
    def _on_count_clicked(self, message: StatusCounts.Clicked) -> None:
        alone = self.condition.statuses == (message.status,)
        self.set_terms({"status", "is"}, () if alone else listed("status", (message.status,)))

    # What its keys do

    def action_view(self, step: int) -> None:
        """The next view, or the one before."""
        views = self.views
        names = [view.name for view in views]
        here = names.index(self.wanted.view.name) if self.wanted.view.name in names else 0
        self._show_view(views[(here + step) % len(views)])

    def action_order(self) -> None:
        """Asks for the column to sort by."""
        from app.console.runs.pickers import OrderPicker

        self.app.push_screen(OrderPicker(self.wanted.sort), self._order_picked)

    def action_turn_order(self) -> None:
        """The order the other way round."""
        sort = self.wanted.sort
        self.want(replace(self.wanted, sort=RunSort(sort.column, not sort.descending)))

    def action_statuses(self) -> None:
        """Asks which statuses are wanted."""
        self._with_cache(self._pick_statuses)

    def action_repositories(self) -> None:
        """Asks which repositories are wanted."""
        self._with_cache(self._pick_repositories)

    def action_branches(self) -> None:
        """Asks which branches are wanted."""
        self._with_cache(self._pick_branches)

    def action_dates(self) -> None:
        """Asks which stretch of time is wanted."""
        from app.console.runs.pickers import DatesPicker, Limits

        def picked(limits: Limits | None) -> None:
            if limits is not None:
                new = [f"{key}:{text}" for key, text in zip(("since", "until"), limits, strict=True) if text]
                self.set_terms({"since", "until"}, new)

        line = self.wanted.line
        sheet = DatesPicker(written_limit(line, "since"), written_limit(line, "until"), self.console.clock())
        self.app.push_screen(sheet, picked)

    def action_same_branch(self) -> None:
        """Shows all runs on the branch of the run under the cursor."""
        row = self.table.row
        if row is not None:
            terms = (
                *listed("repo", (row.repository,)),
                *listed("branch", (row.branch_name,) if row.branch_name else ()),
            )
            self.set_line(" ".join(terms))

    def action_views(self) -> None:
        """Asks for a view."""
        from app.console.runs.views_sheet import ViewPicker

        def picked(name: str | None) -> None:
            if name is not None:
                self._show_view(named(self.views, name))

        self.app.push_screen(ViewPicker(self.views, self.wanted.view, self._forget_view), picked)

    def action_save_view(self) -> None:
        """Keeps what is shown as a view."""
        from app.console.runs.views_sheet import ViewSaver

        self.app.push_screen(ViewSaver(self.wanted, self.views), self._keep_view)

    # How it does that

    def _show_view(self, view: View) -> None:
        self.bar.line.put(view.query, 0)
        self.want(TableQuery.of(view, self.wanted.sort))

    def _order_picked(self, sort: RunSort | None) -> None:
        if sort is not None:
            self.want(replace(self.wanted, sort=sort))

    def _keep_view(self, view: ViewSettings | None) -> None:
        if view is not None:
            self.memory.change(lambda known: known.with_view(view))
            self._show_view(named(self.views, view.name))
            self.console.say(f"Kept as the view {safe_text(view.name)}.")

    def _forget_view(self, view: View) -> None:
        self.memory.change(lambda known: known.without_view(view.name))
        self.say_wanted()

    def _with_cache(self, pick: Callable[["Engine"], Awaitable[None]]) -> None:
        engine = self.console.engine
        if engine is None:
            self.console.say(self.console.not_open)
        else:
            self.run_worker(self._picking(engine, pick), exclusive=True, group="pick")

    async def _picking(self, engine: "Engine", pick: Callable[["Engine"], Awaitable[None]]) -> None:
        try:
            await pick(engine)
        except StorageError as error:
            self.storage_failed(error)

    async def _pick_statuses(self, engine: "Engine") -> None:
        from app.console.runs.pickers import Picked, StatusPicker

        condition = self.condition
        counts = await engine.cache.status_counts(condition)

        def picked(statuses: Picked | None) -> None:
            if statuses is not None:
                self.set_terms({"status", "is"}, listed("status", *statuses))

        self.app.push_screen(StatusPicker(counts, condition.statuses, condition.not_statuses), picked)

    async def _pick_repositories(self, engine: "Engine") -> None:
        condition = self.condition
        names = await engine.cache.repositories()
        self._pick_values("repo", "Show repository", names, condition.repositories, condition.not_repositories)

    async def _pick_branches(self, engine: "Engine") -> None:
        condition = self.condition
        names = await engine.cache.branches(replace(condition, branches=(), not_branches=()))
        self._pick_values("branch", "Show branch", names, condition.branches, condition.not_branches)

    def _pick_values(
        self, key: KeyName, title: str, names: tuple[str, ...], wanted: tuple[str, ...], excluded: tuple[str, ...]
    ) -> None:
        from app.console.runs.pickers import Picked, ValuePicker

        def picked(values: Picked | None) -> None:
            if values is not None:
                self.set_terms({key}, listed(key, *values))

        self.app.push_screen(ValuePicker(title, names, wanted, excluded), picked)
