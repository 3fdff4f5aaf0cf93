"""Marking many runs, and doing one thing with all of them."""

from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.binding import Binding, BindingType

from app.console.runs.finding import RunFindingScreen
from app.console.session import LONGEST_COPY
from app.query import Query
from app.text import safe_text
from storage.errors import StorageError
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from app.engine import Engine

WIDE: Final = 120
"""From this width on there is room for what can be done with marks."""

MOST_MARKS: Final = 1_000
"""Runs marked at a time: whoever means more means a filter."""


class RunMarkingScreen(RunFindingScreen):
    """A screen whose marked runs are acted on together."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "asterisk",
            "mark_all",
            "mark all",
            show=False,
            key_display="*",
            tooltip="Everything that matches",
            id="runs.mark_all",
        ),
        Binding(
            "e",
            "export",
            "export",
            show=False,
            tooltip="The marked runs, or all that match, to a file",
            id="runs.export",
        ),
    ]

    def say_remark(self, query: Query) -> None:
        """Says what is wrong with the line, or how many runs are marked."""
        count = len(self.table.marks)
        if query.problems or not count:
            super().say_remark(query)
        else:
            does = " · c continues · y copies · e exports · esc unmarks" if self.app.size.width >= WIDE else ""
            self.bar.remark(safe_text(f"■ {count:,} marked{does}"), tone="busy")

    @on(RunTable.Marked)
    def _on_marked(self) -> None:
        self.say_remark(self.wanted.query(self.console.clock()))

    @on(RunTable.RangeRequested)
    def _on_range_wanted(self, message: RunTable.RangeRequested) -> None:
        self._with_cache(lambda engine: self._mark_range(engine, message.first_id, message.last_id))

    def action_mark_all(self) -> None:
        """Marks every run that matches; once more takes the marks away."""
        self._with_cache(self._mark_all)

    def action_continue_run(self) -> None:
        """Opens the form for the next turn: of the marked runs, or of the one under the cursor."""
        if self.table.marks:
            self._with_engine(self._continue_many)
        else:
            super().action_continue_run()

    def action_copy_id(self) -> None:
        """Copies the ids of the marked runs, a line each, or the one under the cursor."""
        ids = self.table.marks.ids
        if not ids:
            super().action_copy_id()
            return
        self.app.copy_to_clipboard("\n".join(safe_text(run_id, limit=LONGEST_COPY) for run_id in ids))
        self.console.say(f"Copied {len(ids):,} run ids")

    def action_export(self) -> None:
        """Asks where the runs shall be written to."""
        self._with_engine(self._export)

    async def _mark_all(self, engine: "Engine") -> None:
        condition = self.condition
        total = await engine.cache.count(condition)
        if total > MOST_MARKS:
            self.console.say(
                f"{total:,} runs match; at most {MOST_MARKS:,} are marked at a time. Narrow the filter first.",
                severity="warning",
            )
            return
        rows = await engine.cache.rows(condition, self.wanted.sort, offset=0, limit=MOST_MARKS)
        ids = tuple(row.run_id for row in rows)
        if all(run_id in self.table.marks for run_id in ids):
            self.table.unmark(ids)
        else:
            self.table.mark_all(ids)

    async def _mark_range(self, engine: "Engine", first_id: str, last_id: str) -> None:
        condition, sort = self.condition, self.wanted.sort
        ends = [await engine.cache.index_of(run_id, condition, sort) for run_id in (first_id, last_id)]
        known = sorted(index for index in ends if index is not None)
        # The run where the range began may be hidden by now: then it has one end only.
        if not known:
            return
        start, count = known[0], known[-1] - known[0] + 1
        if count > MOST_MARKS:
            self.console.say(
                f"That would mark {count:,} runs; {MOST_MARKS:,} at a time are the most.", severity="warning"
            )
            return
        rows = await engine.cache.rows(condition, sort, offset=start, limit=count)
        self.table.mark_all(row.run_id for row in rows)

    async def _continue_many(self, engine: "Engine") -> None:
        from app.console.runs.continue_many import ContinueManyForm

        ids = self.table.marks.ids
        held = await engine.cache.details(ids)
        runs = tuple(held[run_id].run for run_id in ids if run_id in held)
        form = ContinueManyForm(engine, runs, cap=self.console.settings.console.send_cap)
        self.app.push_screen(form, lambda _: self._continued_many(form.confirmed))

    def _continued_many(self, run_ids: tuple[str, ...]) -> None:
        if run_ids:
            # What was left out stays marked: for another try.
            self.table.unmark(run_ids)
            self.action_refresh()

    async def _export(self, engine: "Engine") -> None:
        from app.console.runs.export import Export, suggested_path
        from app.console.runs.export_sheet import RunExportScreen

        condition, marks = self.condition, self.table.marks.ids
        try:
            count = len(marks) or await engine.cache.count(condition)
        except StorageError as error:
            self.storage_failed(error)
            return
        what = Export(engine, condition, self.wanted.sort, marks, count)
        self.app.push_screen(RunExportScreen(what, suggested_path(self.console.clock())), self._exported)

    def _exported(self, said: str | None) -> None:
        if said is not None:
            self.console.say(said)
