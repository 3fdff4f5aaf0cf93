"""A scrolling view of any number of rows, with a cursor on one of them."""

from typing import ClassVar, Final

from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.reactive import reactive
from textual.scroll_view import ScrollView

from widgets.frame import Notice
from widgets.kit import hidden

HEADER: Final = 1
"""Lines above the first row; they do not scroll."""


class CursorView(ScrollView, can_focus=True):
    """Moves the cursor and keeps it in view; a subclass draws the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("down,j", "move(1)", "down", id="table.down"),
        hidden("up,k", "move(-1)", "up", id="table.up"),
        hidden("pagedown,ctrl+d,ctrl+f", "page(1)", "page down", id="table.page_down"),
        hidden("pageup,ctrl+u,ctrl+b", "page(-1)", "page up", id="table.page_up"),
        hidden("home,g", "first", "to the first row", id="table.first"),
        hidden("end,G", "last", "to the last row", id="table.last"),
    ]

    notice: reactive[Notice | None] = reactive(None, repaint=False)
    """Shown in place of the rows while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = 0
        self.total = 0
        """The number of rows; kept by the subclass."""

    def cursor_moved(self) -> None:
        """Hook: called after the cursor moved."""

    def rows_came_into_view(self) -> None:
        """Hook: called after other rows scrolled into view."""

    def row_clicked(self, event: events.Click) -> None:
        """Hook: called after a click put the cursor on a row."""

    def on_click(self, event: events.Click) -> None:
        if event.y >= HEADER and (index := self.row_at(event.y - HEADER)) < self.total:
            self.put_cursor(index)
            self.row_clicked(event)

    def action_move(self, rows: int) -> None:
        self.put_cursor(self.cursor + rows)

    def action_page(self, pages: int) -> None:
        rows = pages * max(1, self.page - 1)
        self.scroll_rows_to(self.scroll_offset.y + rows)
        self.put_cursor(self.cursor + rows)

    def action_first(self) -> None:
        self.put_cursor(0)

    def action_last(self) -> None:
        self.put_cursor(self.total - 1)

    def put_cursor(self, index: int) -> None:
        """Put the cursor on a row, or on the nearest existing one, and scroll it into view."""
        if not self.total:
            return
        before = self.cursor
        self.cursor = min(max(0, index), self.total - 1)
        self.repaint_row(before)
        self.repaint_row(self.cursor)
        top = self.scroll_offset.y
        if not top <= self.cursor < top + self.page:
            self.scroll_rows_to(self.cursor if self.cursor < top else self.cursor - self.page + 1)
        self.cursor_moved()

    def scroll_rows_to(self, top: int) -> None:
        """Scroll a row to the top, as far as possible."""
        self.scroll_to(y=top, animate=False, force=True)

    def watch_notice(self) -> None:
        """Repaint the notice unless rows fill the view; it may change many times a second."""
        if len(self.visible_rows) < self.page:
            self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.rows_came_into_view()

    @property
    def page(self) -> int:
        return max(1, self.scrollable_content_region.height - HEADER)

    @property
    def visible_rows(self) -> range:
        top = self.scroll_offset.y
        return range(top, min(self.total, top + self.page))

    def row_at(self, y: int) -> int:
        """The row at this line below the header."""
        return y + self.scroll_offset.y

    def repaint_row(self, index: int) -> None:
        self.refresh(Region(0, index - self.scroll_offset.y + HEADER, self.size.width, 1))

    def repaint_header(self) -> None:
        self.refresh(Region(0, 0, self.size.width, HEADER))
