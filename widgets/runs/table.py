"""The run table: it draws any number of runs, holding only those near the view."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from app.text import SafeText
from storage.records import CoverageGap, RunRow, RunSort
from storage.records.run import NO_FIGURES, RunFigures
from widgets.cursor_view import HEADER
from widgets.runs.columns import ColumnArrangement, ColumnChoice, ColumnKey, TitleDrag, TitlePointer, title_at
from widgets.runs.marks import RunMarks
from widgets.runs.renderer import COMPONENTS, RowState, TableRenderer, unseen_note
from widgets.runs.row_cells import RESTS, RowTimes, SearchHighlight, rests, row_cells, row_times
from widgets.runs.rows import FreezeFrame, RunRows


class RunTable(RunRows):
    """Draws runs, one a line, under titles that sort, move and resize the columns."""

    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "sideways(1)", "columns to the right", show=False, id="table.right"),
        Binding("left,h", "sideways(-1)", "columns to the left", show=False, id="table.left"),
        Binding("enter", "choose", "open", show=False, key_display="enter", id="table.open"),
        Binding("space", "mark", "mark", show=False, tooltip="Mark the run for an action on several", id="table.mark"),
        Binding("shift+down,J", "stretch(1)", "mark down", show=False, id="table.mark_down"),
        Binding("shift+up,K", "stretch(-1)", "mark up", show=False, id="table.mark_up"),
    ]

    @dataclass
    class Chosen(Message):
        """A run was opened, with enter or a double click."""

        run_id: str

    @dataclass
    class GapChosen(Message):
        """A line that stands for missing runs was opened, with enter or a click."""

        gap: CoverageGap | None
        """None: the line below the last run."""

    @dataclass
    class GroupToggled(Message):
        """The head of a group was opened, with enter or a click: fold or unfold it."""

        name: str

    @dataclass
    class SortRequested(Message):
        """A column's title was clicked."""

        column: str

    @dataclass
    class Arranged(Message):
        """Columns were moved or resized."""

        choice: ColumnChoice

    @dataclass
    class Marked(Message):
        """The marks changed."""

        count: int

    @dataclass
    class RangeRequested(Message):
        """All runs between these two should be marked; the table may not hold them all."""

        first_id: str
        last_id: str

    def __init__(
        self,
        clock: Callable[[], datetime],
        choice: ColumnChoice | None = None,
        freeze: FreezeFrame = nullcontext,
        *,
        confirmed_for: timedelta = timedelta.max,
        gap_texts: Callable[[CoverageGap], tuple[SafeText, ...]] = lambda _: (SafeText("…"),),
        id: str | None = None,
    ) -> None:
        """Start empty; `freeze` keeps the screen's frame while rows are being read.

        A run that was not confirmed for `confirmed_for` is drawn quietly. `gap_texts` returns the line of a gap between
        two runs, in full and then shorter.
        """
        super().__init__(clock, freeze, self.resize_to, id=id)
        self._confirmed_for = confirmed_for
        self._gap_texts = gap_texts
        self._columns = ColumnArrangement(choice or ColumnChoice())
        self._sort = RunSort()
        self._sought = SearchHighlight()
        self._stuck: frozenset[str] = frozenset()
        self._marks = RunMarks()
        self._painted: dict[int, RowTimes] = {}
        self._aged, self._aged_at = self._window, self._now
        self._renderer: TableRenderer | None = None
        self._pointer = TitlePointer()
        self._figures: Mapping[str, RunFigures] = {}

    def tick(self, now: datetime, as_of: datetime | None = None) -> None:
        """Update the times; active runs are timed up to `as_of`, if the service has stopped answering then."""
        may_lag = self._aged is self._window and as_of == self._as_of and timedelta(0) <= now - self._aged_at < RESTS
        if not may_lag:
            self._aged, self._aged_at = self._window, now
        self._now, self._as_of = now, as_of
        for index in self.visible_rows:
            row = self._window.row(index)
            if row is not None and not (may_lag and rests(row, now)) and self._painted.get(index) != self._times(row):
                self.repaint_row(index)

    def sorted_by(self, sort: RunSort) -> None:
        """Show the order of the rows."""
        if sort != self._sort:
            self._sort = sort
            self.repaint_header()

    def set_columns(self, choice: ColumnChoice) -> None:
        """Change the columns, their order and widths."""
        if choice != self._columns.choice:
            self._columns.choice = choice
            self.resize_to(self.total)
            self.refresh()

    def squeeze(self, *, is_squeezed: bool) -> None:
        """Make the columns as narrow as they may be beside a pane, or not."""
        if is_squeezed != self._columns.is_squeezed:
            self._columns.is_squeezed = is_squeezed
            self.resize_to(self.total)
            self.refresh()

    @property
    def least_width(self) -> int:
        """Cells that all columns and the scroll bar need."""
        return self._columns.least_width + self.styles.scrollbar_size_vertical

    def mark_stuck(self, run_ids: frozenset[str]) -> None:
        """Mark the runs that take far longer than usual."""
        changed, self._stuck = self._stuck ^ run_ids, run_ids
        self.repaint_runs(changed)

    def highlight(self, sought: SearchHighlight) -> None:
        """Highlight what the search matched."""
        if sought != self._sought:
            self._sought = sought
            self.refresh()

    def mark_all(self, run_ids: Iterable[str]) -> None:
        """Mark these runs too."""
        self._marks.add(run_ids)
        self._marks_changed()

    def unmark(self, run_ids: Iterable[str] | None = None) -> None:
        """Unmark these runs; None: all runs."""
        if run_ids is None:
            self._marks.clear()
        else:
            self._marks.remove(run_ids)
        self._marks_changed()

    def show_figures(self, figures: Mapping[str, RunFigures]) -> None:
        """Show these figures, by run."""
        before, self._figures = self._figures, figures
        self.repaint_runs(frozenset(run for run in figures if figures[run] != before.get(run)))

    @property
    def marks(self) -> RunMarks:
        """The marked runs."""
        return self._marks

    @property
    def choice(self) -> ColumnChoice:
        """The shown columns."""
        return self._columns.choice

    def width_of(self, key: ColumnKey) -> int:
        """The drawn width of a column; for a hidden one, its minimum."""
        return self._columns.width_of(key)

    def is_stuck(self, run_id: str) -> bool:
        """Whether the run takes far longer than usual."""
        return run_id in self._stuck

    @property
    def shows_unconfirmed(self) -> bool:
        """Whether a row in view was not confirmed for long, as of the last reading."""
        return any(not times.is_live for times in self._painted.values())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Act on no row while all are about to be replaced."""
        if self.is_replacing and action != "sideways":
            return False
        return super().check_action(action, parameters)

    def action_sideways(self, columns: int) -> None:
        """Scroll sideways to the next stop."""
        if (stop := self._columns.stop_beyond(self.scroll_offset.x, columns)) is not None:
            self.scroll_to(x=stop, animate=False, force=True)

    def action_choose(self) -> None:
        """Open the run under the cursor, or ask for the missing runs of its line."""
        if self.is_at_gap:
            self.post_message(self.GapChosen(self.gap))
        elif self.group is not None:
            self.post_message(self.GroupToggled(self.group.name))
        elif self._row is not None:
            self.post_message(self.Chosen(self._row.run_id))

    def action_mark(self) -> None:
        """Mark or unmark the run under the cursor, and move on to the next one."""
        if self._row is not None:
            self._marks.toggle(self._row.run_id)
            self._marks_changed()
            self.action_move(1)

    def action_stretch(self, rows: int) -> None:
        """Mark the run under the cursor and the next one; going back unmarks."""
        here, there = self._row, self._window.row(self._cursor + rows)
        # Stop where rows are missing: a range never skips a run.
        if here is not None and there is not None:
            self._marks.extend(here.run_id, there.run_id)
            self.action_move(rows)
            self._marks_changed()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begin to drag a title or its edge."""
        is_title = event.y < HEADER and event.button == 1
        if self._pointer.press(self._title(event) if is_title else None):
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move or resize the dragged column."""
        if (choice := self._pointer.drag(self._columns.line_x(event.x, self.scroll_offset.x))) is not None:
            self.set_columns(choice)

    def on_mouse_up(self) -> None:
        """End the drag."""
        if (before := self._pointer.release()) is not None:
            self.release_mouse()
            if self._columns.choice != before:
                self.post_message(self.Arranged(self._columns.choice))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the row, open it on a double click, or sort by the column; shift and ctrl mark."""
        if event.y < HEADER:
            self._click_title(event)
            return
        index = self.scroll_offset.y + event.y - HEADER
        row = self._window.row(index)
        if index >= self.total or self.is_replacing:
            return
        begin = self._marks.anchor or (self._row.run_id if self._row else None)
        self.put_cursor(index)
        if self.is_at_gap or self.group is not None:
            self.action_choose()
            return
        if event.shift and row is not None and begin is not None:
            self.post_message(self.RangeRequested(begin, row.run_id))
        elif event.ctrl and row is not None:
            self._marks.toggle(row.run_id)
            self._marks_changed()
        elif event.chain > 1:
            self.action_choose()

    def _click_title(self, event: events.Click) -> None:
        if self._unseen and event.x >= self.scrollable_content_region.width - len(unseen_note(self._unseen)) - 1:
            self.action_first()
            return
        found = self._title(event)
        if found is None or self._pointer.has_dragged:
            return
        column = found.placed.column
        if not found.is_edge and column.sort is not None:
            self.post_message(self.SortRequested(column.sort))
        elif found.is_edge and event.chain > 1 and self._columns.choice.width(column.key) is not None:
            self.set_columns(self._columns.choice.sized(column.key, None))
            self.post_message(self.Arranged(self._columns.choice))

    def _title(self, event: events.MouseEvent) -> TitleDrag | None:
        line_x = self._columns.line_x(event.x, self.scroll_offset.x)
        return title_at(self._columns.layout, self._columns.choice, line_x)

    def resize_to(self, total: int) -> None:
        """Lay out the columns, and make room for this many rows."""
        self._columns.fit(self.scrollable_content_region.width)
        self.virtual_size = Size(self._columns.layout.width, total + HEADER)

    def rows_came_into_view(self) -> None:
        """Forget the times of rows that left the view."""
        super().rows_came_into_view()
        self._painted = {index: self._painted[index] for index in self.visible_rows if index in self._painted}

    def on_resize(self) -> None:
        """Lay out the columns again."""
        self.resize_to(self.total)
        self.put_cursor(self._cursor)
        self._request_rows()

    def notify_style_update(self) -> None:
        """Drop the styles of the previous theme."""
        super().notify_style_update()
        self._renderer = None

    def render_line(self, y: int) -> Strip:
        """One line of the view: the titles, a row or the notice."""
        renderer = self._renderer = self._renderer or TableRenderer.of(self)
        view = self.scrollable_content_region.size
        if view.width != self._columns.width:
            # The first frame is painted before on_resize: its columns would jump with the second.
            self._columns.fit(view.width)
        if y < HEADER:
            return renderer.header(self._columns.layout, self._sort, self._unseen, view.width, self.scroll_offset.x)
        index = self.scroll_offset.y + y - HEADER
        return self._line_of_no_run(renderer, index, view) or self._run_line(renderer, index, view.width)

    def _line_of_no_run(self, renderer: TableRenderer, index: int, view: Size) -> Strip | None:
        gap, state = self._window.gap(index), RowState(index == self._cursor, marked=False, focused=self.has_focus)
        if texts := self._gap_texts(gap) if gap else self._tail if index == self._window.total else ():
            return renderer.missing(texts, view.width, state)
        if head := self._window.head(index):
            return renderer.head(head, view.width, state)
        if not self.count:
            return renderer.notice(self._notice, index - self.scroll_offset.y, view.width, view.height - HEADER)
        return renderer.blank(view.width) if index >= self.total else None

    def _run_line(self, renderer: TableRenderer, index: int, width: int) -> Strip:
        row, layout = self._window.row(index), self._columns.layout
        if row is None:
            return renderer.placeholder(layout, width, at_cursor=index == self._cursor)
        times = self._painted[index] = self._times(row)
        figures, is_stuck = self._figures.get(row.run_id, NO_FIGURES), row.run_id in self._stuck
        line = row_cells(row, layout, times, self._sought, figures, stuck=is_stuck)
        state = RowState(index == self._cursor, row.run_id in self._marks, self.has_focus)
        return renderer.row(line, layout, width, self.scroll_offset.x, state)

    def _times(self, row: RunRow) -> RowTimes:
        return row_times(row, self._now, self._as_of, self._confirmed_for)

    def _marks_changed(self) -> None:
        self.refresh()
        self.post_message(self.Marked(len(self._marks)))
