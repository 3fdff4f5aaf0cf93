"""Text cut to terminal cells, as the terminal counts them, and columns: `lay_out` places those of every table."""

from collections.abc import Sequence
from typing import Final, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size

Cut = Literal["end", "middle"]
ELLIPSIS = "…"


def fit(text: str, width: int, cut: Cut = "end") -> str:
    """The text in exactly `width` cells: padded with spaces, or cut with an ellipsis at the end or in the middle."""
    size = cell_len(text)
    if size <= width:
        return text + " " * (width - size)
    return set_cell_size(shorten(text, width, cut), width)


def shorten(text: str, width: int, cut: Cut = "end") -> str:
    """The text in at most `width` cells, with an ellipsis for the rest."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    if cut == "end":
        return _head(text, width - 1) + ELLIPSIS
    tail = (width - 1) * 2 // 3
    return _head(text, width - 1 - tail) + ELLIPSIS + _head(text[::-1], tail)[::-1]


def join_parts(parts: Sequence[str], width: int) -> str:
    """As many of the parts as fit, with dots between them; the first is always included, shortened in the middle."""
    first, *others = [*filter(None, parts)] or [""]
    text = shorten(first, max(1, width), "middle")
    for part in others:
        text = f"{text} · {part}" if cell_len(f"{text} · {part}") <= width else text
    return text


def beside(name: str, about: Sequence[str], width: int, least: int = 20) -> tuple[str, str]:
    """A name and a remark in this many cells; the name gives way, down to `least` cells."""
    remark = join_parts(about, max(1, width - min(cell_len(name), least)))
    return shorten(name, max(1, width - cell_len(remark)), "middle"), remark


def _head(text: str, width: int) -> str:
    head = text[:width]
    while cell_len(head) > width:
        head = head[:-1]
    return head


CELL_PADDING: Final = 1
"""Cells that stay empty at the right edge."""


class Column(Struct, frozen=True):
    """A column, and how it may grow."""

    title: str
    width: int
    grows: int = 0
    """Its share of the spare cells."""
    most: int = 0
    """The column's maximum width; 0: no limit."""
    gap: int = 1
    cut: Cut = "end"
    frozen: bool = False
    """Stays in view while the others scroll sideways."""
    wide_from: int = 0
    """Left out of tables with fewer cells than this."""


ColumnT = TypeVar("ColumnT", bound=Column)


class PlacedColumn(Struct, Generic[ColumnT], frozen=True):
    """A column and its position on the line of all columns."""

    column: ColumnT
    number: int
    """The column's number in the table, counting hidden columns."""
    x: int
    """The column's first cell."""
    width: int

    @property
    def end(self) -> int:
        return self.x + self.width


class Layout(Struct, Generic[ColumnT], frozen=True):
    """All columns, side by side."""

    placed: tuple[PlacedColumn[ColumnT], ...]
    width: int
    """Cells of the whole line; more than the view's if the table scrolls sideways."""
    frozen_width: int
    """Cells at the left that do not scroll."""

    def at(self, x: int) -> PlacedColumn[ColumnT] | None:
        """The column under a cell of the line."""
        return next((placed for placed in self.placed if placed.x <= x < placed.end + placed.column.gap), None)

    @property
    def stops(self) -> tuple[int, ...]:
        """The cells at which scrolling sideways stops: a column is then right behind the frozen ones."""
        return tuple(p.x - self.frozen_width for p in self.placed if not p.column.frozen)


def lay_out(view_width: int, columns: Sequence[ColumnT], gutter: int) -> Layout[ColumnT]:
    """Lay out the columns behind `gutter` cells: if all fit, they fill the view, otherwise they extend beyond it."""
    parts = [
        (number, column) for number, column in enumerate(columns) if max(0, view_width - gutter) >= column.wide_from
    ]
    widths = [column.width for _, column in parts]
    growing = [(i, column) for i, (_, column) in enumerate(parts) if column.grows]
    for _ in range(view_width - width_needed([column for _, column in parts], gutter)):
        hungry = [(i, column) for i, column in growing if not column.most or widths[i] < column.most]
        if not hungry:
            break
        # The column furthest behind its share grows first, cell by cell, which avoids rounding.
        widths[min(hungry, key=lambda each: (widths[each[0]] - each[1].width) / each[1].grows)[0]] += 1
    placed: list[PlacedColumn[ColumnT]] = []
    x = gutter
    for (number, column), width in zip(parts, widths, strict=True):
        placed.append(PlacedColumn(column, number, x, width))
        x += width + column.gap
    frozen = [p for p in placed if p.column.frozen]
    frozen_width = frozen[-1].end + frozen[-1].column.gap if frozen else gutter
    layout = Layout(tuple(placed), max(view_width, (placed[-1].end if placed else gutter) + CELL_PADDING), frozen_width)
    # The last column is widened so that scrolling ends at a stop: no column is ever cut at its left.
    hidden = layout.width - view_width
    stop = next((stop for stop in layout.stops if stop >= hidden), hidden)
    if hidden <= 0 or stop == hidden:
        return layout
    last = layout.placed[-1]
    wider = replace(last, width=min(last.width + stop - hidden, max(last.width, last.column.most)))
    return replace(layout, placed=(*layout.placed[:-1], wider), width=stop + view_width)


def width_needed(columns: Sequence[Column], gutter: int) -> int:
    """Cells of these columns at their minimum."""
    return (
        gutter + sum(column.width + column.gap for column in columns) - sum(c.gap for c in columns[-1:]) + CELL_PADDING
    )
