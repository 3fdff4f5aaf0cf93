"""A view of very many lines with a cursor on one of them; it knows their number and nothing else of them."""

from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.scroll_view import ScrollView

HEADER: Final = 1
"""Lines above the first row; they do not scroll."""


class CursorView(ScrollView, can_focus=True):
    """Moves a cursor and keeps it on show; the widget that draws the rows overrides the members below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="table.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="table.up"),
        Binding("pagedown,ctrl+d,ctrl+f", "page(1)", "page down", show=False, id="table.page_down"),
        Binding("pageup,ctrl+u,ctrl+b", "page(-1)", "page up", show=False, id="table.page_up"),
        Binding("home,g", "first", "to the first row", show=False, id="table.first"),
        Binding("end,G", "last", "to the last row", show=False, id="table.last"),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id)
        self._cursor = 0
        """The cursor's row, from 0."""

    # What it needs from the widget that draws the rows

    @property
    def total(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def cursor_moved(self) -> None:
        """The cursor is on another row."""

    def rows_came_into_view(self) -> None:
        """Other rows are on show."""

    # How it moves

    def action_move(self, rows: int) -> None:
        """Moves the cursor."""
        self.put_cursor(self._cursor + rows)

    def action_page(self, pages: int) -> None:
        """Moves the view and the cursor by pages."""
        rows = pages * max(1, self.page - 1)
        self.scroll_rows_to(self.scroll_offset.y + rows)
        self.put_cursor(self._cursor + rows)

    def action_first(self) -> None:
        """To the first row."""
        self.put_cursor(0)

    def action_last(self) -> None:
        """To the last row."""
        self.put_cursor(self.total - 1)

    def put_cursor(self, index: int) -> None:
        """Puts the cursor on a row, or on the nearest one there is, and brings it into view."""
        if not self.total:
            return
        before, self._cursor = self._cursor, min(max(0, index), self.total - 1)
        self.repaint_row(before)
        self.repaint_row(self._cursor)
        top = self.scroll_offset.y
        if not top <= self._cursor < top + self.page:
            self.scroll_rows_to(self._cursor if self._cursor < top else self._cursor - self.page + 1)
        self.cursor_moved()

    def scroll_rows_to(self, top: int) -> None:
        """Makes a row the first one on show, as far as that goes."""
        self.scroll_to(y=top, animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Tells that other rows are on show."""
        super().watch_scroll_y(old_value, new_value)
        self.rows_came_into_view()

    # What is on show

    @property
    def page(self) -> int:
        """How many rows there is room for."""
        return max(1, self.scrollable_content_region.height - HEADER)

    @property
    def rows_on_show(self) -> range:
        """The rows on show."""
        top = self.scroll_offset.y
        return range(top, min(self.total, top + self.page))

    def repaint_row(self, index: int) -> None:
        """Paints one row again."""
        self.refresh(Region(0, index - self.scroll_offset.y + HEADER, self.size.width, 1))

    def repaint_header(self) -> None:
        """Paints the line above the rows again."""
        self.refresh(Region(0, 0, self.size.width, HEADER))
