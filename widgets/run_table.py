"""The table of runs: as long as there are runs, as heavy as what is on show; its cursor is on a run, not on a row."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from storage.records import RunRow, RunSort
from storage.records.query import SortColumn
from widgets.cursor_view import HEADER, CursorView
from widgets.notice import Notice
from widgets.run_columns import place
from widgets.run_line import Clocked, cells, clocked
from widgets.run_paint import COMPONENTS, Paint
from widgets.run_window import NOTHING, Place, RunWindow


class RunTable(CursorView):
    """A window over any number of runs.

    It holds the rows around what is on show, asks for others with `WindowWanted` and is given them with `show`.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "sideways(1)", "columns to the right", show=False, id="table.right"),
        Binding("left,h", "sideways(-1)", "columns to the left", show=False, id="table.left"),
        Binding("enter", "choose", "open", show=False, key_display="enter", id="table.open"),
    ]

    @dataclass
    class WindowWanted(Message):
        """Rows are about to be on show that the table does not hold: read those of `here`."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest place counts."""
            return isinstance(message, RunTable.WindowWanted)

    @dataclass
    class Highlighted(Message):
        """The cursor is on another run."""

        row: RunRow | None
        """None: there are no rows."""

        def can_replace(self, message: Message) -> bool:
            """Only the latest run counts."""
            return isinstance(message, RunTable.Highlighted)

    @dataclass
    class Chosen(Message):
        """A run was opened, with enter or a double click."""

        run_id: str

    @dataclass
    class SortWanted(Message):
        """A column's title was clicked."""

        column: SortColumn

    def __init__(self, clock: Callable[[], datetime], *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id)
        self._now = clock()
        self._as_of: datetime | None = None
        self._window = NOTHING
        self._cursor_id: str | None = None
        """The cursor's run; None: there is none, or its row is not here yet."""
        self._row: RunRow | None = None
        """The cursor's run, once it is here."""
        self._asked: tuple[int, int] | None = None
        self._unseen = 0
        """Runs that arrived above what is on show."""
        self._sort = RunSort()
        self._words: tuple[str, ...] = ()
        self._stuck: frozenset[str] = frozenset()
        self._notice: Notice | None = None
        self._painted: dict[int, Clocked] = {}
        self._paint: Paint | None = None
        self._layout = place(0)

    # What it is told

    def show(self, window: RunWindow, place: Place) -> None:
        """Takes rows that were read for a place; the cursor and what is on show stay on their runs.

        Args:
            window: The rows.
            place: What had been asked, since the reader may have moved on meanwhile.
        """
        before, top, cursor_before = self._window, self.scroll_offset.y, self._cursor
        is_sought = self._cursor_id is not None and self._row is None
        follows = is_sought or self._cursor in self.rows_on_show
        # Asking for the same again would bring the same again.
        self._window, self._asked = window, (place.offset, place.limit)
        self._settle_cursor(window, place)
        self._resize_to(window.total)
        self._hold_still(window, place, follows=follows)
        if before.total != window.total or self.scroll_offset.y != top or not before.rows:
            self.refresh()
        else:
            self._repaint_changed(before, cursor_before)
        self._want_rows()

    def tick(self, now: datetime, as_of: datetime | None = None) -> None:
        """Moves the clock; only lines whose times read differently are painted again.

        Args:
            now: The time.
            as_of: When the service last answered, while it does not any more: what goes on is counted up to then.
        """
        self._now, self._as_of = now, as_of
        for index in self.rows_on_show:
            row = self._window.row(index)
            if row is not None and self._painted.get(index) != clocked(row, now, as_of):
                self.repaint_row(index)

    def say(self, notice: Notice | None) -> None:
        """What to say where rows would be, while there are none."""
        if notice != self._notice:
            self._notice = notice
            if not self._window.total:
                self.refresh()

    def sorted_by(self, sort: RunSort) -> None:
        """Which order the rows come in."""
        if sort != self._sort:
            self._sort = sort
            self.repaint_header()

    def mark_stuck(self, run_ids: frozenset[str]) -> None:
        """Which runs take far longer than they should."""
        changed, self._stuck = self._stuck ^ run_ids, run_ids
        for index in self.rows_on_show:
            row = self._window.row(index)
            if row is not None and row.run_id in changed:
                self.repaint_row(index)

    def highlight(self, search: str) -> None:
        """What the search looks for, to be seen where it was found."""
        words = tuple(search.casefold().split())
        if words != self._words:
            self._words = words
            self.refresh()

    def start_over(self, *, follow: bool) -> None:
        """The next rows are other rows: the view goes to the top.

        Args:
            follow: The cursor stays on its run if that is among them; otherwise it goes to the first one.
        """
        if self.scroll_offset.y:
            self._window = replace(self._window, offset=0, rows=())
        if not follow:
            self._cursor, self._cursor_id = 0, None
        self.scroll_rows_to(0)

    def seek(self, run_id: str) -> None:
        """The cursor goes to this run with the next rows, if it is among them."""
        self._cursor_id, self._row = run_id, None

    # What it knows

    @property
    def total(self) -> int:
        """How many runs the whole table has."""
        return self._window.total

    @property
    def row(self) -> RunRow | None:
        """The run under the cursor."""
        return self._row

    def is_stuck(self, run_id: str) -> bool:
        """Whether the run takes far longer than it should."""
        return run_id in self._stuck

    @property
    def here(self) -> Place:
        """Where the reader stands, as a question for rows: a page before what is on show, and one after."""
        top, page = self.scroll_offset.y, self.page
        anchor = self._anchor()
        index, run_id = anchor or (0, None)
        return Place(max(0, top - page), 3 * page, run_id, index, self._cursor_id, self._cursor)

    def _anchor(self) -> tuple[int, str] | None:
        if self.scroll_offset.y == 0:
            return None
        index = self._cursor if self._cursor in self.rows_on_show else self.scroll_offset.y
        row = self._window.row(index)
        return (index, row.run_id) if row else None

    # How it moves

    def action_sideways(self, columns: int) -> None:
        """Scrolls until another column stands beside those that stay."""
        here, stops = self.scroll_offset.x, self._layout.stops
        later = [stop for stop in stops if (stop > here if columns > 0 else stop < here)]
        if later:
            self.scroll_to(x=later[0] if columns > 0 else later[-1], animate=False, force=True)

    def action_choose(self) -> None:
        """Opens the run under the cursor."""
        if self._row is not None:
            self.post_message(self.Chosen(self._row.run_id))

    def rows_came_into_view(self) -> None:
        """Asks for those that are not here; at the top there is nothing unseen any more."""
        if self.scroll_offset.y == 0:
            self._unseen = 0
        self._painted = {index: self._painted[index] for index in self.rows_on_show if index in self._painted}
        self._want_rows()

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the row, opens it on a double click, or sorts by the column."""
        line = event.y
        if line < HEADER:
            place = self._layout.at(event.x if event.x < self._layout.frozen_width else event.x + self.scroll_offset.x)
            if place is not None and place.column.sort is not None:
                self.post_message(self.SortWanted(place.column.sort))
            return
        index = self.scroll_offset.y + line - HEADER
        if index < self._window.total:
            self.put_cursor(index)
            if event.chain > 1:
                self.action_choose()

    def cursor_moved(self) -> None:
        """Names the run that the cursor is on now."""
        row = self._window.row(self._cursor)
        self._cursor_id = row.run_id if row else None
        if row != self._row:
            self._row = row
            self.post_message(self.Highlighted(row))

    def _settle_cursor(self, window: RunWindow, place: Place) -> None:
        if self._cursor_id != place.cursor_id:
            self._cursor += window.shift  # The reader moved on while the rows were read.
        elif window.cursor_index is not None:
            self._cursor = window.cursor_index
        self._cursor = min(max(0, self._cursor), max(0, window.total - 1))
        if window.row(self._cursor) is not None or not window.total:
            self.cursor_moved()

    def _hold_still(self, window: RunWindow, place: Place, *, follows: bool) -> None:
        """Scrolls so that what the reader looks at stays where it is, and the cursor on show if it was."""
        unseen, top = self._unseen, self.scroll_offset.y
        if place.anchor_id is not None and window.shift:
            unseen += window.shift
            self.scroll_rows_to(top + window.shift)
        elif follows and self._cursor >= top + self.page:
            # What came above pushed the cursor's run out of the view.
            unseen += self._cursor - self.page + 1 - top
            self.scroll_rows_to(self._cursor - self.page + 1)
        self._unseen = max(0, unseen) if self.scroll_offset.y else 0

    def _want_rows(self) -> None:
        visible, margin = self.rows_on_show, self.page // 2
        if not visible or self._window.holds(visible.start - margin, visible.stop - 1 + margin):
            return
        here = self.here
        if self._asked != (here.offset, here.limit):
            self._asked = (here.offset, here.limit)
            self.post_message(self.WindowWanted())

    # How it is painted

    def on_resize(self) -> None:
        """Places the columns anew."""
        self._resize_to(self._window.total)
        self.put_cursor(self._cursor)
        self._want_rows()

    def notify_style_update(self) -> None:
        """Forgets colours that may be other colours now."""
        super().notify_style_update()
        self._paint = None

    def render_line(self, y: int) -> Strip:
        """One line of what is on show: the titles, a row, or what there is to say."""
        paint = self._paint = self._paint or Paint.of(self)
        view = self.scrollable_content_region.size
        scroll_x = self.scroll_offset.x
        if y < HEADER:
            return paint.header(self._layout, self._sort, self._unseen, view.width, scroll_x)
        if not self._window.total:
            return paint.notice(self._notice, y - HEADER, view.width, view.height - HEADER)
        index = self.scroll_offset.y + y - HEADER
        if index >= self._window.total:
            return paint.blank(view.width)
        row = self._window.row(index)
        at_cursor = index == self._cursor
        if row is None:
            return paint.awaited(self._layout, view.width, at_cursor=at_cursor)
        times = self._painted[index] = clocked(row, self._now, self._as_of)
        line = cells(row, self._layout, times, self._words, stuck=row.run_id in self._stuck)
        return paint.row(line, self._layout, view.width, scroll_x, at_cursor=at_cursor, lively=self.has_focus)

    def _resize_to(self, total: int) -> None:
        self._layout = place(self.scrollable_content_region.width)
        self.virtual_size = Size(self._layout.width, total + HEADER)

    def _repaint_changed(self, before: RunWindow, cursor_before: int) -> None:
        for index in self.rows_on_show:
            if before.row(index) != self._window.row(index) or index in {cursor_before, self._cursor}:
                self.repaint_row(index)
        self.repaint_header()
