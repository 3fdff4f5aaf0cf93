"""Rows of any height, with a cursor that stays on its row; enter opens a row's subject."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final, Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from widgets.badges import STYLES, Tone
from widgets.cells import fit, shorten
from widgets.cursor_view import HEADER, CursorView

Ink = Tone | Literal["strong", "title"]
Piece = tuple[str, Ink]
"""Safe text and its style."""
Pieces = tuple[Piece, ...]
MARK: Final = 2
"""Cells before a line: the cursor's mark and a gap."""
_TONES: Final[dict[str, Tone]] = {"strong": "plain", "title": "quiet"}


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that belong together: a row, or a title."""

    lines: tuple[Pieces, ...]
    key: str = ""
    """Identifies the row across updates; empty: the cursor skips it."""
    leads: bool = False
    """Whether enter opens something."""


Draw = Callable[[int], Sequence[Block]]
"""Makes the blocks for a width in cells; the first one is the line that does not scroll."""


class LeadList(CursorView):
    """Titles and rows, one below the other; only lines that changed are painted again."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lead-list--cursor",
        "lead-list--resting",
        "lead-list--mark",
        *(f"lead-list--{tone}" for tone in STYLES),
    }
    DEFAULT_CSS = """
    LeadList {
        height: 1fr; padding: 0 1;
        scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-color: $panel;
        & > .lead-list--cursor { background: $block-cursor-blurred-background; }
        & > .lead-list--resting { background: $panel; }
        & > .lead-list--mark { color: $accent; }
        & > .lead-list--good { color: $success; }
        & > .lead-list--bad { color: $error; }
        & > .lead-list--busy { color: $primary; }
        & > .lead-list--wait { color: $secondary; }
        & > .lead-list--warn { color: $warning; }
        & > .lead-list--plain { color: $foreground; }
        & > .lead-list--quiet { color: $foreground 70%; }
    }
    """
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

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the clicked row; a double click opens it."""
        line = event.y - HEADER + self.scroll_offset.y
        if event.y >= HEADER and line < self.total and self._blocks[self._block_at(line)].key:
            self.put_cursor(line)
            if event.chain > 1:
                self.action_choose()

    def render_line(self, y: int) -> Strip:
        """One line of the view."""
        width = self.scrollable_content_region.width
        line = y - HEADER + self.scroll_offset.y
        if y < HEADER:
            return self._strip(self._head, width, self.rich_style, mark="")
        if line >= self.total:
            return Strip.blank(width, self.rich_style)
        is_here = self.block is not None and self._block_at(line) == self._block_at(self._cursor)
        ground = self._style("cursor" if self.has_focus else "resting") if is_here else self.rich_style
        return self._strip(self._lines[line], width, ground, mark="▌" if is_here else "")

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

    def _style(self, part: str) -> Style:
        return self.get_component_rich_style(f"lead-list--{part}")

    def _ink(self, ink: Ink) -> Style:
        colour = Style(color=self._style(_TONES.get(ink, ink)).color)
        return colour + Style(bold=True) if ink in _TONES else colour

    def _strip(self, pieces: Pieces, width: int, ground: Style, *, mark: str) -> Strip:
        segments = [Segment(fit(mark, MARK), ground + Style(color=self._style("mark").color))]
        room = width - MARK
        for text, ink in pieces:
            piece = shorten(text, room)
            room -= cell_len(piece)
            segments.append(Segment(piece, ground + self._ink(ink)))
        return Strip(segments).extend_cell_length(width, ground).crop(0, width)


def apart(left: Sequence[Piece], right: Sequence[Piece], width: int) -> Pieces:
    """One line with two parts, at its two ends; the right one is left out where it does not fit."""
    room = width - sum(cell_len(text) for text, _ in (*left, *right))
    return (*left, (" " * room, "quiet"), *right) if right and room >= 0 else tuple(left)
