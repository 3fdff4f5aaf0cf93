"""Lines with a cursor that stays on its row: a table whose items are all in memory, and rows of any height."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import ClassVar, Final, Generic, Literal, Protocol, TypeVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from app.text import SafeText
from widgets.badges import STYLES, Tone
from widgets.cells import Cut, fit, shorten
from widgets.cursor_view import HEADER, CursorView
from widgets.frame.notice import Notice, above, wrapped

TonedText = tuple[SafeText, Tone]
TableLine = tuple[TonedText, ...]
Ink = Tone | Literal["strong", "title"]
Piece = tuple[str, Ink]
"""Safe text and its style."""
Pieces = tuple[Piece, ...]

MARK: Final = 2
"""Cells before a line: the cursor's mark and a gap."""
GAP: Final = 1
_TONES: Final[dict[str, Tone]] = {"strong": "plain", "title": "quiet"}


class Lines(CursorView):
    """Draws lines of pieces below one that does not scroll."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lines--cursor",
        "lines--resting",
        "lines--mark",
        *(f"lines--{tone}" for tone in STYLES),
    }
    DEFAULT_CSS = """
    Lines {
        height: 1fr;
        scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-color: $panel;
        & > .lines--cursor { background: $block-cursor-blurred-background; }
        & > .lines--resting { background: $panel; }
        & > .lines--mark { color: $accent; }
        & > .lines--good { color: $success; }
        & > .lines--bad { color: $error; }
        & > .lines--busy { color: $primary; }
        & > .lines--wait { color: $secondary; }
        & > .lines--warn { color: $warning; }
        & > .lines--plain { color: $foreground; }
        & > .lines--quiet { color: $foreground 70%; }
    }
    """

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a double click opens it."""
        line = event.y - HEADER + self.scroll_offset.y
        if event.y >= HEADER and line < self.total and self.is_row(line):
            self.put_cursor(line)
            if event.chain > 1:
                self.action_choose()

    def is_row(self, line: int) -> bool:
        """Whether the cursor can be on this line."""
        return line >= 0

    def action_choose(self) -> None:
        """Open the row under the cursor."""

    def style_of(self, part: str) -> Style:
        """The style of a component."""
        return self.get_component_rich_style(f"lines--{part}")

    def strip(self, pieces: Pieces, width: int, *, is_here: bool = False) -> Strip:
        """One line; `is_here`: with the cursor's mark and background."""
        ground = self.style_of("cursor" if self.has_focus else "resting") if is_here else self.rich_style
        segments = [Segment(fit("▌" if is_here else "", MARK), ground + Style(color=self.style_of("mark").color))]
        room = width - MARK
        for text, ink in pieces:
            piece = shorten(text, room)
            room -= cell_len(piece)
            colour = Style(color=self.style_of(_TONES.get(ink, ink)).color, bold=True if ink in _TONES else None)
            segments.append(Segment(piece, ground + colour))
        return Strip(segments).extend_cell_length(width, ground).crop(0, width)


class LineItem(Protocol):
    """An item on one line."""

    @property
    def key(self) -> str:
        """Identifies the item across updates."""

    def cells(self, now: datetime) -> TableLine:
        """The parts of its line at this time."""


T = TypeVar("T", bound=LineItem)


class LineColumn(Struct, frozen=True):
    """One column."""

    title: str
    part: int
    """Index of the part of the line that it shows."""
    width: int
    gap: int = GAP
    """Empty cells after the column."""
    cut: Cut = "end"


class LineTable(Lines, Generic[T]):
    """Items, one a line; only lines that changed are painted again."""

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
        found = (index for index, item in enumerate(items) if held is not None and item.key == held.key)
        here = 0 if held is None else next(found, min(self._cursor, max(0, len(items) - 1)))
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

    def watch_has_focus(self, value: bool) -> None:
        """Repaint the cursor's line, which shows whether the table has the focus."""
        super().watch_has_focus(value)
        self.repaint_row(self._cursor)

    def render_line(self, y: int) -> Strip:
        """One line of the view: the titles, an item or the notice."""
        width, index = self.scrollable_content_region.width, y - HEADER + self.scroll_offset.y
        columns = self._columns_for(width - MARK)
        if not self._items:
            return self._notice_line(y, width)
        if y < HEADER:
            titles = "".join(fit(each.title, each.width) + " " * each.gap for each in columns).rstrip()
            return Strip([Segment(fit(" " * MARK + titles, width), self.style_of("quiet"))], width)
        if index >= self.total:
            return Strip.blank(width, self.rich_style)
        line = self._painted[index] = self._items[index].cells(self._now)
        pieces = tuple(
            (fit(line[each.part][0], each.width, each.cut) + " " * each.gap, line[each.part][1]) for each in columns
        )
        return self.strip(pieces, width, is_here=index == self._cursor)

    def _notice_line(self, y: int, width: int) -> Strip:
        notice = self._notice
        lines = () if notice is None else (f"{notice.glyph}  {notice.title}", "", *wrapped(notice, width))
        at = y - above(self.size.height, len(lines))
        if notice is None or not 0 <= at < len(lines):
            return Strip.blank(width, self.rich_style)
        style = Style(color=self.style_of("quiet" if at else notice.tone).color, bold=None if at else True)
        return Strip([Segment(fit(lines[at].center(width), width), self.rich_style + style)], width)


class Block(Struct, frozen=True):
    """Lines that belong together: a row, or a title."""

    lines: tuple[Pieces, ...]
    key: str = ""
    """Identifies the row across updates; empty: the cursor skips it."""
    leads: bool = False
    """Whether enter opens something."""


Draw = Callable[[int], Sequence[Block]]
"""Makes the blocks for a width in cells; the first one is the line that does not scroll."""


class LeadList(Lines):
    """Titles and rows, one below the other; only lines that changed are painted again."""

    DEFAULT_CSS = "LeadList { padding: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "choose", "its runs", key_display="enter", tooltip="Show the runs of this row", id="leads.open"
        )
    ]

    @dataclass
    class Highlighted(Message):
        """The cursor moved to another row."""

    @dataclass
    class Chosen(Message):
        """A row was opened."""

        key: str

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._draw: Draw = lambda _: ()
        self._head: Pieces = ()
        self._blocks: Sequence[Block] = ()
        self._starts: list[int] = []
        """The first line of each block."""
        self._lines: list[Pieces] = []
        self._sought = ""
        self._told = ("", False)
        self._was_moved = False
        """Whether the user has moved the cursor; until then it stays on the first row."""

    @property
    def block(self) -> Block | None:
        """The row under the cursor; None: there is none."""
        block = self._blocks[self._block_at(self._cursor)] if self._blocks else None
        return block if block is not None and block.key else None

    def show(self, draw: Draw) -> None:
        """Show these blocks; the cursor stays on its row."""
        self._draw = draw
        self._lay_out()

    def seek(self, key: str) -> None:
        """Put the cursor on the row with this key, now or once it is there."""
        self._sought = key
        self._lay_out()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As high as its lines, where there is room."""
        del container, viewport, width
        return HEADER + self.total

    def on_resize(self) -> None:
        """Draw for the new width."""
        self._lay_out()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable enter on rows that open nothing; where none does, offer no key."""
        if action == "choose":
            is_possible = self.block is not None and self.block.leads
            return is_possible or (None if any(block.leads for block in self._blocks) else False)
        return super().check_action(action, parameters)

    def action_choose(self) -> None:
        """Open the row under the cursor."""
        if self.block is not None and self.block.leads:
            self.post_message(self.Chosen(self.block.key))

    def action_move(self, rows: int) -> None:
        """Move the cursor by rows; beyond the last one the view still scrolls."""
        here = self._block_at(self._cursor)
        step = 1 if rows > 0 else -1
        beyond = range(here + step, len(self._blocks) if step > 0 else -1, step)
        found = next((index for index in beyond if self._blocks[index].key), None)
        if found is None:
            self.scroll_rows_to(self.scroll_offset.y + rows)
        else:
            self.put_cursor(self._starts[found])

    def put_cursor(self, index: int) -> None:
        """Put the cursor on the row of a line, or on the nearest row, and scroll all of it into view."""
        keyed = [at for at, block in enumerate(self._blocks) if block.key]
        if not keyed:
            return
        self._was_moved = True
        at = self._block_at(min(max(0, index), self.total - 1))
        nearest = min(keyed, key=lambda each: abs(each - at))
        before, self._cursor = self._cursor, self._starts[nearest]
        for line in (*self._lines_of(before), *self._lines_of(self._cursor)):
            self.repaint_row(line)
        # Scroll the title above the first row into view with it.
        first = 0 if nearest == keyed[0] else self._cursor
        last = self._lines_of(self._cursor)[-1]
        top = self.scroll_offset.y
        if first < top or last - first >= self.page:
            self.scroll_rows_to(first)
        elif last >= top + self.page:
            self.scroll_rows_to(last - self.page + 1)
        self._tell()

    def is_row(self, line: int) -> bool:
        """Whether the line is part of a row."""
        return bool(self._blocks[self._block_at(line)].key)

    def render_line(self, y: int) -> Strip:
        """One line of the view."""
        width, line = self.scrollable_content_region.width, y - HEADER + self.scroll_offset.y
        if y < HEADER:
            return self.strip(self._head, width)
        if line >= self.total:
            return Strip.blank(width, self.rich_style)
        is_here = self.block is not None and self._block_at(line) == self._block_at(self._cursor)
        return self.strip(self._lines[line], width, is_here=is_here)

    def _lay_out(self) -> None:
        key = self._sought or ("" if self.block is None else self.block.key)
        before, old = self._lines, self._head
        head, *self._blocks = self._drawn()
        self._head = head.lines[0] if head.lines else ()
        self._starts = list(accumulate((len(block.lines) for block in self._blocks), initial=0))[:-1]
        self._lines = [line for block in self._blocks for line in block.lines]
        self.total = len(self._lines)
        self.virtual_size = Size(0, self.total + HEADER)
        index = next((at for at, block in enumerate(self._blocks) if block.key and block.key == key), None)
        if self._sought and index is not None:
            self._sought = ""
            self.put_cursor(self._starts[index])
        else:
            self._stay(index)
        if len(before) != self.total or self._head != old:
            self.refresh(layout=len(before) != self.total)
        else:
            for line in self.visible_rows:
                if before[line] != self._lines[line]:
                    self.repaint_row(line)

    def _drawn(self) -> Sequence[Block]:
        """The blocks for the whole width, or beside the scroll bar if those do not fit.

        Whether a bar is shown now does not count: the blocks may fit one width only, and the bar would come and go.
        """
        room = self.content_region
        blocks = self._draw(max(1, room.width - MARK))
        if sum(len(block.lines) for block in blocks[1:]) + HEADER > room.height:
            blocks = self._draw(max(1, room.width - self.styles.scrollbar_size_vertical - MARK))
        return blocks or (Block(()),)

    def _stay(self, index: int | None) -> None:
        """Keep the cursor on its row, or near it if it is gone."""
        before = self._cursor
        keyed = [at for at, block in enumerate(self._blocks) if block.key]
        if keyed and not self._was_moved:
            index = keyed[0]
        elif index is None and keyed:
            wanted = self._block_at(min(self._cursor, self.total - 1))
            index = min(keyed, key=lambda each: abs(each - wanted))
        self._cursor = 0 if index is None else self._starts[index]
        if self._cursor != before:
            if self.scroll_offset.y:
                self.scroll_rows_to(self.scroll_offset.y + self._cursor - before)
            self.refresh()
        self._tell()

    def _tell(self) -> None:
        """Announce the row under the cursor if it is another one: layouts happen every second."""
        here = ("", False) if self.block is None else (self.block.key, self.block.leads)
        if here != self._told:
            self._told = here
            self.post_message(self.Highlighted())

    def _block_at(self, line: int) -> int:
        """The block that a line is in."""
        return max(0, bisect_right(self._starts, line) - 1)

    def _lines_of(self, line: int) -> range:
        """The lines of the block that a line is in."""
        if not self._blocks:
            return range(1)
        at = self._block_at(line)
        return range(self._starts[at], self._starts[at] + len(self._blocks[at].lines))


def apart(left: Sequence[Piece], right: Sequence[Piece], width: int) -> Pieces:
    """One line with two parts, at its two ends; the right one is left out where it does not fit."""
    room = width - sum(cell_len(text) for text, _ in (*left, *right))
    return (*left, (" " * room, "quiet"), *right) if right and room >= 0 else tuple(left)
