"""The run table: it draws any number of runs, holding only those near the view.

The cursor and the visible rows stay on their runs, whatever arrives above.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from app.text import SafeText
from storage.records import CoverageGap, RunFigures, RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from storage.records.query import Grouping, RunGroup
from storage.records.run import NO_FIGURES
from widgets.cursor_view import HEADER, CursorView
from widgets.frame.notice import Notice
from widgets.runs.columns import RESTS, ColumnChoice, RowFacts, RowTimes, rests, row_times
from widgets.runs.layout import ColumnArrangement, TitleDrag
from widgets.runs.lines import COMPONENTS, RowState, SearchHighlight, TableRenderer, unseen_note
from widgets.runs.marks import RunMarks

HOLD_S: Final = 0.05
"""The longest time that an old frame stays on the screen; a longer wait must be visible."""

DIMMED: Final = 0.5
"""The opacity of rows that are about to be replaced."""

FreezeFrame = Callable[[], AbstractContextManager[object]]
"""Returns a context in which the screen paints nothing."""


class RunTable(CursorView, can_focus=True):
    """Draws runs, one a line, under titles that sort, move and resize the columns.

    It holds the rows around the view, asks for others with `WindowRequested` and receives them through `show`.
    Between `hold` and `release` the screen keeps its old frame, so that it paints no frame without rows in between.
    """

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

    @dataclass
    class WindowRequested(Message):
        """The table needs rows that it does not hold, as its `request` describes."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest request counts."""
            return isinstance(message, RunTable.WindowRequested)

    @dataclass
    class Highlighted(Message):
        """The cursor moved to another run."""

        row: RunRow | None
        """None: there are no rows."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest run counts."""
            return isinstance(message, RunTable.Highlighted)

    @dataclass
    class Replaced(Message):
        """The rows of another query are on show."""

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
        super().__init__(id=id)
        self._freeze = freeze
        self._confirmed_for = confirmed_for
        self._gap_texts = gap_texts
        self._frozen: ExitStack | None = None
        """The open context of `FreezeFrame`. None: the screen paints."""
        self._now = clock()
        self._as_of: datetime | None = None
        self._window = RunWindow()
        self._cursor_id: str | None = None
        """The cursor's run; None: there is none, or its row is not loaded."""
        self._row: RunRow | None = None
        """The cursor's run, once it is loaded."""
        self._named: RunRow | RunGroup | None = None
        """The run announced last, or the group."""
        self._asked: tuple[int, int] | None = None
        self._unseen = 0
        """Runs that arrived above the view."""
        self.is_replacing = False
        """Whether the rows of another query are on their way; until they come, keys about rows do nothing."""
        self._notice: Notice | None = None
        self._tail: tuple[SafeText, ...] = ()
        """The text of the line below the last run; the cursor can stand on it."""
        self._columns = ColumnArrangement(choice or ColumnChoice())
        self._sort = RunSort()
        self._sought = SearchHighlight()
        self._stuck: frozenset[str] = frozenset()
        self._figures: Mapping[str, RunFigures] = {}
        self._marks = RunMarks()
        self._painted: dict[int, RowTimes] = {}
        self._aged, self._aged_at = self._window, self._now
        self._renderer: TableRenderer | None = None
        self._drag: TitleDrag | None = None
        """The title that is being dragged."""
        self._has_dragged = False
        """Whether the pointer has moved or resized a column since it was pressed."""

    @property
    def count(self) -> int:
        """The number of runs, however many of them are held here."""
        return self._window.runs

    @property
    def gaps(self) -> tuple[CoverageGap, ...]:
        """The gaps that have a line between two runs."""
        return tuple(gap for _, gap in self._window.gaps)

    @property
    def gap(self) -> CoverageGap | None:
        """The gap of the line under the cursor, or None."""
        return self._window.gap(self._cursor)

    @property
    def group(self) -> RunGroup | None:
        """The group whose head is under the cursor, or None."""
        return self._window.head(self._cursor)

    @property
    def group_at(self) -> RunGroup | None:
        """The group that the cursor is in, on its head or on one of its runs."""
        above = [group for number, group in self._window.heads if number <= self._cursor]
        return above[-1] if above else None

    @property
    def is_at_tail(self) -> bool:
        """Whether the cursor is on the line that follows the last run."""
        return bool(self._tail) and self._cursor == self._window.total

    @property
    def is_at_gap(self) -> bool:
        """Whether the cursor is on a line that stands for missing runs."""
        return self.is_at_tail or self.gap is not None

    def show(self, window: RunWindow, request: WindowRequest) -> None:
        """Show rows that were read; the cursor and the visible rows stay on their runs.

        The user may have moved on while the rows were read.
        """
        before, top, cursor_before = self._window, self.scroll_offset.y, self._cursor
        is_sought, was_at_tail = self._cursor_id is not None and self._row is None, self.is_at_tail
        gap_before, group_before = self.gap, self.group_at
        is_found = is_sought and self._cursor_id == request.cursor_id and window.cursor_index is not None
        follows = is_sought or self._cursor in self.visible_rows
        # Remembered, so that the same rows are not requested again.
        self._window, self._asked = window, (request.offset, request.limit)
        self.total = window.total + bool(self._tail)
        self._settle_cursor(window, request, was_at_tail=was_at_tail, gap_before=gap_before, group=group_before)
        self.resize_to(self.total)
        if self.is_replacing:
            self.is_replacing, self._unseen, self.styles.text_opacity = False, 0, 1.0
            # The cursor stays in view: on its run if that is still there, else on the first one.
            self.scroll_rows_to(0 if self._cursor < self.page else max(0, self._cursor - self.page // 2))
            self.post_message(self.Replaced())
        else:
            self._hold_still(window, request, follows=follows)
            if is_found and not self.shows_cursor:
                self.scroll_rows_to(max(0, self._cursor - self.page // 2))
        if self.is_held:
            # These rows may be for an earlier position; those for the current one follow.
            if self._holds_visible_rows():
                self.release()
        elif before.total != window.total or self.scroll_offset.y != top or not before.rows:
            self.refresh()
        else:
            self._repaint_changed(before, cursor_before)
        self._request_rows()

    def counted(self, total: int) -> None:
        """Take the exact number of rows: the first answer may have held only a minimum."""
        if total == self.count:
            return
        self._window, self._asked = replace(self._window, total=total, gaps=()), None
        self._count_rows()
        self._request_rows()

    def explain(self, notice: Notice | None) -> None:
        """Show a notice in place of the rows while there are none."""
        if notice != self._notice:
            self._notice = notice
            if not self.count:
                self.refresh()

    def end_with(self, tail: tuple[SafeText, ...]) -> None:
        """Show the first of these texts that fits on a line below the last run; without texts no such line."""
        before, self._tail = self._tail, tail
        if bool(before) != bool(tail):
            self._count_rows()
            self.put_cursor(self._cursor)
        elif before != tail:
            self.repaint_row(self._window.total)
        for index, _ in self._window.gaps:
            self.repaint_row(index)

    def _count_rows(self) -> None:
        self.total = self._window.total + bool(self._tail)
        self.resize_to(self.total)
        self.refresh()

    def start_over(self, *, follow: bool) -> None:
        """Prepare for other rows: the cursor goes to the first one or else follows its run. The old ones are dimmed."""
        self.hold()
        self.is_replacing = True
        if not follow:
            self._cursor_id = None

    def seek(self, run_id: str) -> None:
        """Move the cursor to this run with the next rows, if it is among them."""
        self._cursor_id, self._row = run_id, None

    @property
    def row(self) -> RunRow | None:
        """The run under the cursor."""
        return self._row

    @property
    def is_row_awaited(self) -> bool:
        """Whether the cursor is on a run that is not loaded."""
        return self._row is None and self._cursor < self._window.total and not (self.gap or self.group)

    @property
    def rows_on_show(self) -> tuple[RunRow, ...]:
        """The runs in view, as far as they are loaded."""
        return tuple(row for row in map(self._window.row, self.visible_rows) if row is not None)

    def repaint_runs(self, run_ids: Container[str]) -> None:
        """Repaint the lines of these runs, where they are in view."""
        for index in self.visible_rows:
            row = self._window.row(index)
            if row is not None and row.run_id in run_ids:
                self.repaint_row(index)

    def request(
        self, condition: RunFilter, sort: RunSort, grouping: Grouping | None = None, *, is_fresh: bool = True
    ) -> WindowRequest:
        """Request the visible rows, and a page before and after them."""
        if self.is_replacing:
            return WindowRequest(condition, sort, 0, 3 * self.page, cursor_id=self._cursor_id, grouping=grouping)
        index, run_id = self._anchor() or (0, None)
        key = (*self._around, run_id, index, self._cursor_id, self._cursor)
        return WindowRequest(condition, sort, *key, is_fresh, grouping)

    @property
    def _around(self) -> tuple[int, int]:
        """The first row of the three pages around the view, and their number of rows."""
        return max(0, self.scroll_offset.y - self.page), 3 * self.page

    def _anchor(self) -> tuple[int, str] | None:
        if self.scroll_offset.y == 0:
            return None
        index = self._cursor if self._cursor in self.visible_rows and self._row else self.scroll_offset.y
        row = self._window.row(index)
        return (index, row.run_id) if row else None

    @property
    def is_held(self) -> bool:
        """Whether the screen keeps its frame."""
        return self._frozen is not None

    def hold(self) -> None:
        """Paint nothing until `release`, for `HOLD_S` at most since the first of several calls."""
        if self._frozen is None and self.is_mounted:
            self._frozen = ExitStack()
            self._frozen.enter_context(self._freeze())
            self._frozen.callback(self.set_timer(HOLD_S, self.release).stop)

    def release(self) -> None:
        """Paint again, if the frame was held."""
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            self.styles.text_opacity = DIMMED if self.is_replacing else 1.0
            frozen.close()
            self.refresh()

    def on_unmount(self) -> None:
        """Release the frame: the screen must not wait for the rows of a table that is gone."""
        self.release()

    def cursor_moved(self) -> None:
        """Announce the run under the cursor."""
        row = self._row = self._window.row(self._cursor)
        self._cursor_id = row.run_id if row else None
        if (named := row or self.group) != self._named and not self.is_row_awaited:
            self._named = named
            # Paint the rows first: showing the run itself may take as long again.
            self.call_after_refresh(self.post_message, self.Highlighted(row))

    def _settle_cursor(
        self,
        window: RunWindow,
        request: WindowRequest,
        *,
        was_at_tail: bool,
        gap_before: CoverageGap | None,
        group: RunGroup | None,
    ) -> None:
        is_sought_since = self._row is None and self._cursor_id not in {None, request.cursor_id}
        if self._cursor_id != request.cursor_id:
            self._cursor += window.shift  # The user moved on while the rows were read.
        elif window.cursor_index is not None:
            self._cursor = window.cursor_index
        elif group is not None and not self.is_replacing:
            at = window.row_of_head(group.name)  # The head of its group.
            self._cursor = self._cursor if at is None else at
        elif self.is_replacing:
            self._cursor = 0
        elif gap_before is not None:
            # The gap is filled: put the cursor on the first run that replaced its line.
            same = (number for number, gap in window.gaps if gap.before == gap_before.before)
            self._cursor = next(same, self._cursor + window.shift)
        elif was_at_tail:
            self._cursor += window.shift  # Further runs replaced the line below the last one.
        self._cursor = min(max(0, self._cursor), max(0, self.total - 1))
        is_known = window.row(self._cursor) is not None or self._cursor >= window.total or self.gap or self.group
        if is_known and not is_sought_since:
            self.cursor_moved()

    def _hold_still(self, window: RunWindow, request: WindowRequest, *, follows: bool) -> None:
        """Scroll so that the visible rows stay where they are, and the cursor stays in view if it was."""
        unseen, top = self._unseen, self.scroll_offset.y
        if request.anchor_id is not None and window.shift:
            unseen += window.shift
            self.scroll_rows_to(top + window.shift)
        elif follows and self._cursor >= top + self.page:
            # New rows above pushed the cursor's run out of the view.
            unseen += self._cursor - self.page + 1 - top
            self.scroll_rows_to(self._cursor - self.page + 1)
        self._unseen = max(0, unseen) if self.scroll_offset.y else 0

    def _request_rows(self) -> None:
        visible, margin = self.visible_rows, self.page // 2
        if not visible or self._window.holds(visible.start - margin, visible.stop - 1 + margin):
            return
        if not self._holds_visible_rows():
            self.hold()
        if self._asked != self._around:
            self._asked = self._around
            self.post_message(self.WindowRequested())

    def _holds_visible_rows(self) -> bool:
        visible = self.visible_rows
        return self._window.holds(visible.start, visible.stop - 1)

    def _repaint_changed(self, before: RunWindow, cursor_before: int) -> None:
        for index in self.visible_rows:
            now = self._window
            lines = ((before.row, now.row), (before.gap, now.gap), (before.head, now.head))
            is_other = any(old(index) != new(index) for old, new in lines)
            if is_other or index in {cursor_before, self._cursor}:
                self.repaint_row(index)
        self.repaint_header()

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

    def width_of(self, key: str) -> int:
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
        self._drag, self._has_dragged = self._title(event) if is_title else None, False
        if self._drag is not None:
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move or resize the dragged column."""
        if self._drag is not None:
            choice = self._drag.dragged_to(self._columns.line_x(event.x, self.scroll_offset.x))
            self._has_dragged = self._has_dragged or choice != self._drag.choice
            self.set_columns(choice)

    def on_mouse_up(self) -> None:
        """End the drag."""
        drag, self._drag = self._drag, None
        if drag is not None:
            self.release_mouse()
            if self._columns.choice != drag.choice:
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
        if found is None or self._has_dragged:
            return
        column = found.placed.column
        if not found.is_edge and column.sort is not None:
            self.post_message(self.SortRequested(column.sort))
        elif found.is_edge and event.chain > 1 and self._columns.choice.width(column.key) is not None:
            self.set_columns(self._columns.choice.sized(column.key, None))
            self.post_message(self.Arranged(self._columns.choice))

    def _title(self, event: events.MouseEvent) -> TitleDrag | None:
        return self._columns.title_at(event.x, self.scroll_offset.x)

    def resize_to(self, total: int) -> None:
        """Lay out the columns, and make room for this many rows."""
        self._columns.fit(self.scrollable_content_region.width)
        self.virtual_size = Size(self._columns.layout.width, total + HEADER)

    def rows_came_into_view(self) -> None:
        """Request missing rows, and forget the times of those that left the view."""
        if self.scroll_offset.y == 0:
            self._unseen = 0
        self._request_rows()
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
        facts = RowFacts(row, times, self._figures.get(row.run_id, NO_FIGURES), row.run_id in self._stuck)
        state = RowState(index == self._cursor, row.run_id in self._marks, self.has_focus)
        return renderer.row(facts, self._sought, layout, width, self.scroll_offset.x, state)

    def _times(self, row: RunRow) -> RowTimes:
        return row_times(row, self._now, self._as_of, self._confirmed_for)

    def _marks_changed(self) -> None:
        self.refresh()
        self.post_message(self.Marked(len(self._marks)))
