"""A table whose items are all in memory, with a cursor that stays on its item."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from app.engine.text import SafeText
from widgets.frame import notice_line
from widgets.kit.badges import STYLES, Tone, tone_css
from widgets.kit.cells import Column, fit, lay_out
from widgets.kit.cursor_view import HEADER, CursorView

TonedText = tuple[SafeText, Tone]
TableLine = tuple[TonedText, ...]
MARK: Final = 2
"""Cells before a line: the cursor's mark and a gap."""


class LineItem(Protocol):
    """An item on one line."""

    @property
    def key(self) -> str:
        """Identifies the item across updates."""

    def cells(self, now: datetime) -> TableLine:
        """The parts of its line at this time, one for each column."""


T = TypeVar("T", bound=LineItem)


class LineTable(CursorView, Generic[T]):
    """Items, one a line; only lines that changed are painted again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{part}" for part in ("cursor", "resting", "mark", *STYLES)}
    DEFAULT_CSS = f"""
    LineTable {{
        height: 1fr;
        scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-color: $panel;
        & > .lines--cursor {{ background: $block-cursor-blurred-background; }}
        & > .lines--resting {{ background: $panel; }}
        & > .lines--mark {{ color: $accent; }}
    }}
    {tone_css("LineTable", "lines")}
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "open", id="lines.open")]

    class Highlighted(Message):
        """The cursor moved to another item, or its item changed."""

    class Chosen(Message):
        """The item under the cursor was opened."""

    class EndReached(Message):
        """The cursor reached the last item: more can be loaded."""

    def __init__(self, now: datetime, columns: Sequence[Column]) -> None:
        super().__init__()
        self.now = now
        self._columns = columns
        self._layout = lay_out(0, columns, MARK)
        self._laid_out_for = 0
        self.items: Sequence[T] = ()
        self.marks_resting = True
        """Whether the cursor's line is marked while the table has no focus."""
        self._painted: dict[int, TableLine] = {}

    @property
    def item(self) -> T | None:
        return self.items[self.cursor] if self.items else None

    def show(self, items: Sequence[T]) -> None:
        """Show the items in this order; the cursor and the visible lines stay on their items."""
        before = self.items
        current = self.item
        self.items = items
        self.total = len(items)
        indexes = (index for index, item in enumerate(items) if current is not None and item.key == current.key)
        here = 0
        if current is not None:
            here = next(indexes, min(self.cursor, max(0, len(items) - 1)))
        moved = here - self.cursor if before else 0
        self.cursor = here
        self.virtual_size = Size(0, len(items) + HEADER)
        if moved and self.scroll_offset.y:
            self.scroll_rows_to(self.scroll_offset.y + moved)
        if len(before) != len(items) or moved:
            self.refresh()
        else:
            self.tick(self.now)
        self.post_message(self.Highlighted())

    def set_columns(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._laid_out_for = 0
        self.refresh()

    def seek(self, key: str) -> None:
        if (index := next((index for index, item in enumerate(self.items) if item.key == key), None)) is not None:
            self.put_cursor(index)

    def tick(self, now: datetime) -> None:
        self.now = now
        for index in self.visible_rows:
            if self._painted.get(index) != self.items[index].cells(now):
                self.repaint_row(index)

    def cursor_moved(self) -> None:
        self.post_message(self.Highlighted())
        if self.cursor == self.total - 1:
            self.post_message(self.EndReached())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "choose":
            return bool(self.items)
        return super().check_action(action, parameters)

    def action_choose(self) -> None:
        if self.items:
            self.post_message(self.Chosen())

    def row_clicked(self, event: events.Click) -> None:
        if event.chain > 1:
            self.action_choose()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        index = y - HEADER + self.scroll_offset.y
        if not self.items:
            text, tone, is_title = notice_line(self.notice, y, width, self.size.height)
            style = Style(color=self._style_of(tone).color, bold=is_title or None)
            return Strip([Segment(text, self.rich_style + style)], width)
        if width != self._laid_out_for:
            self._layout = lay_out(width, self._columns, MARK)
            self._laid_out_for = width
        if y < HEADER:
            titles = "".join(fit(each.column.title, each.width + each.column.gap) for each in self._layout.placed)
            return Strip([Segment(fit(" " * MARK + titles.rstrip(), width), self._style_of("quiet"))], width)
        if index >= self.total:
            return Strip.blank(width, self.rich_style)
        line = self._painted[index] = self.items[index].cells(self.now)
        is_here = index == self.cursor and (self.has_focus or self.marks_resting)
        cursor_style = self._style_of("cursor" if self.has_focus else "resting")
        ground = cursor_style if is_here else self.rich_style
        segments = [Segment(fit("▌" if is_here else "", MARK), ground + Style(color=self._style_of("mark").color))]
        for each in self._layout.placed:
            text, tone = line[each.number]
            style = ground + Style(color=self._style_of(tone).color)
            segments.append(Segment(fit(text, each.width, each.column.cut) + " " * each.column.gap, style))
        return Strip(segments).extend_cell_length(width, ground).crop(0, width)

    def _style_of(self, part: str) -> Style:
        return self.get_component_rich_style(f"lines--{part}")
