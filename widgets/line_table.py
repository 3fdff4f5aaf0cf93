"""A table whose items are all in memory: a line each; the cursor follows its item, not its row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from app.text import SafeText
from widgets.badges import STYLES, Tone
from widgets.cells import Cut, fit
from widgets.cursor_view import HEADER, CursorView
from widgets.frame.notice import Notice, above, wrapped

TonedText = tuple[SafeText, Tone]
TableLine = tuple[TonedText, ...]

MARK: Final = 2
"""Cells before the first column: the cursor's mark and a gap."""
GAP: Final = 1


class LineItem(Protocol):
    """An item on one line."""

    @property
    def key(self) -> str:
        """Identifies the item across updates."""

    def cells(self, now: datetime) -> TableLine:
        """The parts of its line at this time."""


T = TypeVar("T", bound=LineItem)


@dataclass(frozen=True, slots=True)
class LineColumn:
    """One column."""

    title: str
    part: int
    """Index of the part of the line that it shows."""
    width: int
    gap: int = GAP
    """Empty cells after the column."""
    cut: Cut = "end"


class LineTable(CursorView, Generic[T]):
    """Items, one a line; only lines that changed are painted again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line-table--header",
        "line-table--cursor",
        "line-table--resting",
        "line-table--mark",
        *(f"line-table--{tone}" for tone in STYLES),
    }
    DEFAULT_CSS = """
    LineTable {
        height: 1fr;
        scrollbar-size-horizontal: 0;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $panel;
        & > .line-table--header { color: $foreground 70%; }
        & > .line-table--cursor { background: $block-cursor-blurred-background; }
        & > .line-table--resting { background: $panel; }
        & > .line-table--mark { color: $accent; }
        & > .line-table--good { color: $success; }
        & > .line-table--bad { color: $error; }
        & > .line-table--busy { color: $primary; }
        & > .line-table--wait { color: $secondary; }
        & > .line-table--warn { color: $warning; }
        & > .line-table--plain { color: $foreground; }
        & > .line-table--quiet { color: $foreground 70%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", show=False, key_display="enter", id="lines.open")
    ]

    @dataclass
    class Highlighted(Message):
        """The cursor moved to another item, or its item changed."""

    @dataclass
    class Chosen(Message):
        """The item under the cursor was opened."""

    @dataclass
    class EndReached(Message):
        """The cursor reached the last item: more can be loaded."""

    def __init__(self, now: datetime, columns_for: Callable[[int], tuple[LineColumn, ...]]) -> None:
        """Prepare; `columns_for` returns the columns for a width, from left to right with a gap behind each."""
        super().__init__()
        self._now = now
        self._columns_for = columns_for
        self._items: Sequence[T] = ()
        self._painted: dict[int, TableLine] = {}
        self._notice: Notice | None = None

    @property
    def item(self) -> T | None:
        """The item under the cursor; None: the table is empty."""
        return self._items[self._cursor] if self._items else None

    def show(self, items: Sequence[T]) -> None:
        """Show the items in this order; the cursor and the visible lines stay on their items."""
        before, held = self._items, self.item
        self._items, self.total = items, len(items)
        here = self._index_of(held)
        moved = here - self._cursor if before else 0
        self._cursor = here
        self.virtual_size = Size(0, len(items) + HEADER)
        if moved and self.scroll_offset.y:
            self.scroll_rows_to(self.scroll_offset.y + moved)
        if len(before) != len(items) or moved:
            self.refresh()
        else:
            self.tick(self._now)
        self.post_message(self.Highlighted())

    def say(self, notice: Notice | None) -> None:
        """Show a notice in place of the rows while there are none."""
        if notice != self._notice:
            self._notice = notice
            self.refresh()

    def seek(self, key: str) -> None:
        """Put the cursor on the item with this key, if there is one."""
        for index, item in enumerate(self._items):
            if item.key == key:
                self.put_cursor(index)
                return

    def tick(self, now: datetime) -> None:
        """Move the clock and repaint the lines that changed."""
        self._now = now
        for index in self.visible_rows:
            if self._painted.get(index) != self._items[index].cells(now):
                self.repaint_row(index)

    def cursor_moved(self) -> None:
        """Announce the item under the cursor, and the last one."""
        self.post_message(self.Highlighted())
        if self._cursor == self.total - 1:
            self.post_message(self.EndReached())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """An empty table has nothing to open."""
        return bool(self._items) if action == "choose" else super().check_action(action, parameters)

    def action_choose(self) -> None:
        """Open the item under the cursor."""
        if self._items:
            self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked line; a double click opens it."""
        index = event.y - HEADER + self.scroll_offset.y
        if event.y >= HEADER and index < self.total:
            self.put_cursor(index)
            if event.chain > 1:
                self.action_choose()

    def watch_has_focus(self, value: bool) -> None:
        """Repaint the cursor's line, which shows whether the table has the focus."""
        super().watch_has_focus(value)
        self.repaint_row(self._cursor)

    def render_line(self, y: int) -> Strip:
        """One line of the view: the titles, an item or the notice."""
        width = self.scrollable_content_region.width
        if not self._items:
            return self._notice_line(y, width)
        if y < HEADER:
            return self._header(width)
        index = y - HEADER + self.scroll_offset.y
        if index >= self.total:
            return Strip.blank(width, self.rich_style)
        line = self._painted[index] = self._items[index].cells(self._now)
        is_cursor = index == self._cursor
        background = self._style("cursor" if self.has_focus else "resting") if is_cursor else self.rich_style
        segments = [Segment(fit("▌" if is_cursor else "", MARK), background + self._colour("mark"))]
        for column in self._columns_for(width - MARK):
            text, tone = line[column.part]
            shown = fit(text, column.width, column.cut) + " " * column.gap
            segments.append(Segment(shown, background + self._colour(tone)))
        return Strip(segments).extend_cell_length(width, background).crop(0, width)

    def _index_of(self, held: T | None) -> int:
        if held is None:
            return 0
        found = (index for index, item in enumerate(self._items) if item.key == held.key)
        return next(found, min(self._cursor, max(0, len(self._items) - 1)))

    def _style(self, part: str) -> Style:
        return self.get_component_rich_style(f"line-table--{part}")

    def _colour(self, part: str) -> Style:
        """The part's colour without its background."""
        return Style(color=self._style(part).color)

    def _header(self, width: int) -> Strip:
        titles = (fit(column.title, column.width) + " " * column.gap for column in self._columns_for(width - MARK))
        line = " " * MARK + "".join(titles).rstrip()
        return Strip([Segment(fit(line, width), self._style("header"))], width)

    def _notice_line(self, y: int, width: int) -> Strip:
        notice, background = self._notice, self.rich_style
        if notice is None:
            return Strip.blank(width, background)
        lines = (f"{notice.glyph}  {notice.title}", "", *wrapped(notice, width))
        at = y - above(self.size.height, len(lines))
        if not 0 <= at < len(lines):
            return Strip.blank(width, background)
        style = self._colour(notice.tone) + Style(bold=True) if at == 0 else self._colour("quiet")
        return Strip([Segment(fit(lines[at].center(width), width), background + style)], width)
