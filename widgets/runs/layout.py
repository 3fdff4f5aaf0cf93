"""The columns of the run table side by side, and how the pointer rearranges them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from widgets.runs.columns import COLUMNS, ColumnChoice, RunColumn

GUTTER: Final = 3
"""Cells before the first column: the cursor, the mark and a space."""
GAP: Final = 2
"""Cells between two columns."""
AIR: Final = 1
"""Cells that stay empty at the right edge."""
_DRAG_CELLS: Final = 2
"""Cells that a title has to be dragged before it moves, so that an unsteady click moves nothing."""


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column and its position on the line of all columns."""

    column: RunColumn
    x: int
    """The column's first cell."""
    width: int

    @property
    def end(self) -> int:
        """The first cell after it."""
        return self.x + self.width


@dataclass(frozen=True, slots=True)
class Layout:
    """All columns, side by side."""

    placed: tuple[PlacedColumn, ...]
    width: int
    """Cells of the whole line; more than the view's if the table scrolls sideways."""
    frozen_width: int
    """Cells at the left that do not scroll."""

    def at(self, x: int) -> PlacedColumn | None:
        """The column under a cell of the line."""
        return next((placed for placed in self.placed if placed.x <= x < placed.end + GAP), None)

    @property
    def stops(self) -> tuple[int, ...]:
        """The cells at which scrolling sideways stops: a column is then right behind the frozen ones."""
        return tuple(p.x - self.frozen_width for p in self.placed if not p.column.frozen)


def lay_out(view_width: int, columns: Sequence[RunColumn]) -> Layout:
    """Lay out the columns: those that fit fill the view to its last cell, the others follow to its right."""
    fitting = _fitting(view_width, columns)
    widths = _grown(fitting, view_width - needed(fitting)) + [c.width for c in columns[len(fitting) :]]
    placed: list[PlacedColumn] = []
    x = GUTTER
    for column, width in zip(columns, widths, strict=True):
        placed.append(PlacedColumn(column, x, width))
        x += width + GAP
    frozen = [p for p in placed if p.column.frozen]
    layout = Layout(tuple(placed), max(view_width, x - GAP + AIR), frozen[-1].end + GAP if frozen else GUTTER)
    return _to_the_last_stop(layout, view_width)


def _to_the_last_stop(layout: Layout, view_width: int) -> Layout:
    """Widen the last column so that scrolling ends at a stop: no column is ever cut at its left."""
    hidden = layout.width - view_width
    stop = next((stop for stop in layout.stops if stop >= hidden), hidden)
    if hidden <= 0 or stop == hidden:
        return layout
    last = layout.placed[-1]
    wider = replace(last, width=min(last.width + stop - hidden, max(last.width, last.column.most)))
    return replace(layout, placed=(*layout.placed[:-1], wider), width=stop + view_width)


def squeezed(columns: Sequence[RunColumn]) -> tuple[RunColumn, ...]:
    """The columns at their minimum beside a pane."""
    return tuple(replace(column, width=column.least or column.width) for column in columns)


def needed(columns: Sequence[RunColumn]) -> int:
    """Cells of these columns at their minimum."""
    return GUTTER + sum(c.width for c in columns) + GAP * max(0, len(columns) - 1) + AIR


def _fitting(view_width: int, columns: Sequence[RunColumn]) -> Sequence[RunColumn]:
    count = len(columns)
    while count > 1 and needed(columns[:count]) > view_width:
        count -= 1
    return columns[:count]


def _grown(columns: Sequence[RunColumn], spare: int) -> list[int]:
    widths = [c.width for c in columns]
    while spare > 0:
        hungry = [i for i, c in enumerate(columns) if c.grows and widths[i] < c.most]
        if not hungry:
            break
        # The column furthest behind its share grows first; cell by cell nothing needs rounding.
        smallest = min(hungry, key=lambda i: (widths[i] - columns[i].width) / columns[i].grows)
        widths[smallest] += 1
        spare -= 1
    return widths


class ColumnArrangement:
    """The chosen columns, laid out for a view."""

    def __init__(self, choice: ColumnChoice) -> None:
        self.choice = choice
        self.is_squeezed = False
        """Whether they are at their minimum, beside a pane."""
        self.fit(0)

    def fit(self, width: int) -> None:
        """Lay out the columns for a view of this width."""
        columns = self.choice.columns
        self.width = width
        self.layout = lay_out(width, squeezed(columns) if self.is_squeezed else columns)

    @property
    def least_width(self) -> int:
        """Cells that all of them need at least."""
        return needed(squeezed(self.choice.columns))

    def width_of(self, key: str) -> int:
        """The drawn width of a column; for a hidden one, its minimum."""
        widths = {column.key: column.width for column in COLUMNS}
        return (widths | {placed.column.key: placed.width for placed in self.layout.placed})[key]

    def stop_beyond(self, x: int, direction: int) -> int | None:
        """The cell at which scrolling sideways from this cell stops next; None: there is no further stop."""
        later = [stop for stop in self.layout.stops if (stop > x if direction > 0 else stop < x)]
        return (later[0] if direction > 0 else later[-1]) if later else None

    def line_x(self, x: int, scroll_x: int) -> int:
        """The cell on the line of all columns at this cell of the scrolled view."""
        return x if x < self.layout.frozen_width else x + scroll_x

    def title_at(self, x: int, scroll_x: int) -> "TitleDrag | None":
        """The title or edge at this cell of the scrolled view; None: there is neither."""
        line_x = self.line_x(x, scroll_x)
        if (placed := self.layout.at(line_x)) is None:
            return None
        # The edge is the gap: a title may fill its column to the last cell.
        return TitleDrag(placed, line_x, placed.end <= line_x < placed.end + GAP, self.layout, self.choice)


@dataclass(frozen=True, slots=True)
class TitleDrag:
    """A drag of a title or of its edge, and the columns when it began."""

    placed: PlacedColumn
    x: int
    """The cell where the drag began."""
    is_edge: bool
    """Whether the gap behind the title is dragged, which resizes the column; else the column moves."""
    layout: Layout
    choice: ColumnChoice

    def dragged_to(self, x: int) -> ColumnChoice:
        """The columns with the pointer at this cell."""
        key = self.placed.column.key
        if self.is_edge:
            return self.choice if x == self.x else self.choice.sized(key, self.placed.width + x - self.x)
        over = self.layout.at(x)
        if over is None or abs(x - self.x) < _DRAG_CELLS:
            return self.choice
        return self.choice.moved(key, over.column.key)
