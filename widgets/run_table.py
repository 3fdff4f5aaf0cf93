"""The table of runs: as long as there are runs, as heavy as what is on show; its cursor is on a run, not on a row."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from storage.records import RunRow, RunSort
from storage.records.query import SortColumn
from widgets.notice import Notice
from widgets.run_columns import place
from widgets.run_line import Clocked, cells, clocked
from widgets.run_paint import COMPONENTS, Paint
from widgets.run_window import NOTHING, Place, RunWindow

HEADER = 1
"""Lines above the first row."""


class RunTable(ScrollView, can_focus=True):
    """A window over any number of runs.

    It holds the rows around what is on show, asks for others with `WindowWanted` and is given them with `show`.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = COMPONENTS

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="table.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="table.up"),
        Binding("pagedown,ctrl+d,ctrl+f", "page(1)", "page down", show=False, id="table.page_down"),
        Binding("pageup,ctrl+u,ctrl+b", "page(-1)", "page up", show=False, id="table.page_up"),
        Binding("home,g", "first", "to the first row", show=False, id="table.first"),
        Binding("end,G", "last", "to the last row", show=False, id="table.last"),
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
        self._cursor = 0
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
        before, top = self._window, self.scroll_offset.y
        self._window, self._asked = window, None
        cursor_before = self._cursor
        self._settle_cursor(window, place)
        self._resize_to(window.total)
        self._hold_still(window, place, top)
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
        for index in self._visible():
            row = self._window.row(index)
            if row is not None and self._painted.get(index) != clocked(row, now, as_of):
                self._repaint(index)

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
            self._repaint_header()

    def mark_stuck(self, run_ids: frozenset[str]) -> None:
        """Which runs take far longer than they should."""
        changed, self._stuck = self._stuck ^ run_ids, run_ids
        for index in self._visible():
            row = self._window.row(index)
            if row is not None and row.run_id in changed:
                self._repaint(index)

    def highlight(self, search: str) -> None:
        """What the search looks for, to be seen where it was found."""
        words = tuple(search.casefold().split())
        if words != self._words:
            self._words = words
            self.refresh()

    def start_over(self) -> None:
        """The next rows are other rows: the view goes to the top, and the cursor with it unless its run is there."""
        self._unseen = 0
        self._window = replace(self._window, offset=0, rows=()) if self.scroll_offset.y else self._window
        self.scroll_to(y=0, animate=False, force=True)

    def seek(self, run_id: str) -> None:
        """The cursor goes to this run with the next rows, if it is among them."""
        self._cursor_id, self._row = run_id, None

    # What it knows

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
        top, page = self.scroll_offset.y, self._page
        anchor = self._anchor()
        index, run_id = anchor or (0, None)
        return Place(max(0, top - page), 3 * page, run_id, index, self._cursor_id, self._cursor)

    @property
    def _page(self) -> int:
        return max(1, self.scrollable_content_region.height - HEADER)

    def _visible(self) -> range:
        top = self.scroll_offset.y
        return range(top, min(self._window.total, top + self._page))

    def _anchor(self) -> tuple[int, str] | None:
        if self.scroll_offset.y == 0:
            return None
        index = self._cursor if self._cursor in self._visible() else self.scroll_offset.y
        row = self._window.row(index)
        return (index, row.run_id) if row else None

    # How it moves

    def action_move(self, rows: int) -> None:
        """Moves the cursor."""
        self._put_cursor(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """Moves the view and the cursor by pages."""
        rows = pages * max(1, self._page - 1)
        self.scroll_to(y=self.scroll_offset.y + rows, animate=False, force=True)
        self._put_cursor(self._cursor + rows)

    def action_first(self) -> None:
        """To the first row."""
        self._put_cursor(0)

    def action_last(self) -> None:
        """To the last row."""
        self._put_cursor(self._window.total - 1)

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

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Asks for the rows that come into view."""
        super().watch_scroll_y(old_value, new_value)
        if round(new_value) == 0:
            self._unseen = 0
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
            self._put_cursor(index)
            if event.chain > 1:
                self.action_choose()

    def _put_cursor(self, index: int) -> None:
        if not self._window.total:
            return
        index = min(max(0, index), self._window.total - 1)
        before, self._cursor = self._cursor, index
        self._repaint(before)
        self._repaint(index)
        top, page = self.scroll_offset.y, self._page
        if not top <= index < top + page:
            self.scroll_to(y=index if index < top else index - page + 1, animate=False, force=True)
        self._name_cursor()

    def _name_cursor(self) -> None:
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
            self._name_cursor()

    def _hold_still(self, window: RunWindow, place: Place, top: int) -> None:
        """Scrolls so that what the reader looks at stays where it is."""
        if place.anchor_id is not None:
            wanted = top + window.shift
            self._unseen = max(0, self._unseen + window.shift) if wanted > 0 else 0
        elif top == 0 and window.row(self._cursor) == self._row and self._cursor in range(self._page, self._page + 50):
            # New runs pushed the cursor's run out below: follow it.
            wanted = self._cursor - self._page + 1
            self._unseen += wanted
        else:
            wanted = top
        if wanted != top:
            unseen = self._unseen
            self.scroll_to(y=wanted, animate=False, force=True)
            self._unseen = unseen if self.scroll_offset.y else 0

    def _want_rows(self) -> None:
        visible, margin = self._visible(), self._page // 2
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
        self._put_cursor(self._cursor)
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
        # The scroll bar takes a column from the view as soon as there is one.
        self._layout = place(self.scrollable_content_region.width)

    def _repaint_changed(self, before: RunWindow, cursor_before: int) -> None:
        for index in self._visible():
            if before.row(index) != self._window.row(index) or index in {cursor_before, self._cursor}:
                self._repaint(index)
        self._repaint_header()

    def _repaint(self, index: int) -> None:
        self.refresh(Region(0, index - self.scroll_offset.y + HEADER, self.size.width, 1))

    def _repaint_header(self) -> None:
        self.refresh(Region(0, 0, self.size.width, HEADER))
