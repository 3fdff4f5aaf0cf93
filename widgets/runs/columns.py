"""The run table's columns: which there are, and how wide each is in a given width."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from storage.records.query import SortColumn
from widgets.cells import Cut

ColumnKey = Literal["status", "repository", "branch", "started", "updated", "took", "run"]

GUTTER: Final = 3
"""Cells before the first column: the cursor, the mark and a space."""
GAP: Final = 2
"""Cells between two columns."""
AIR: Final = 1
"""Cells that stay empty at the right edge."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column and how it may grow."""

    key: ColumnKey
    width: int
    """Cells it has at least."""
    sort: SortColumn
    """What the table is sorted by when this column is asked for."""
    grows: int = 0
    """Its share of the room to spare."""
    most: int = 0
    """Cells it has at most; 0: `width`."""
    cut: Cut = "end"
    frozen: bool = False
    """Stays in view while the others scroll sideways."""


COLUMNS: Final = (
    Column("status", 12, "status", frozen=True),
    Column("repository", 18, "repository", grows=2, most=44, cut="middle", frozen=True),
    Column("branch", 20, "branch", grows=3, most=60),
    Column("started", 9, "started"),
    Column("updated", 9, "updated"),
    Column("took", 7, "took"),
    Column("run", 14, "run", grows=2, most=40, cut="middle"),
)
"""All there are."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A column at its place on an endless line."""

    column: Column
    x: int
    """The first cell, counted from the line's beginning."""
    width: int

    @property
    def end(self) -> int:
        """The first cell after it."""
        return self.x + self.width


@dataclass(frozen=True, slots=True)
class Layout:
    """All columns, side by side."""

    placed: tuple[Placed, ...]
    width: int
    """Cells of the whole line; more than the view's where the table scrolls sideways."""
    frozen_width: int
    """Cells at the left that do not scroll."""

    def at(self, x: int) -> Placed | None:
        """The column under a cell of the line."""
        return next((place for place in self.placed if place.x <= x < place.end + GAP), None)

    @property
    def stops(self) -> tuple[int, ...]:
        """Where scrolling sideways may rest: with a column just behind the frozen ones."""
        return tuple(p.x - self.frozen_width for p in self.placed if not p.column.frozen)


def place(view_width: int, columns: Sequence[Column]) -> Layout:
    """The columns for a view: those that fit fill it to the last cell, the others follow to the right of it."""
    fitting = _fitting(view_width, columns)
    widths = _grown(fitting, view_width - _needed(fitting)) + [c.width for c in columns[len(fitting) :]]
    placed: list[Placed] = []
    x = GUTTER
    for column, width in zip(columns, widths, strict=True):
        placed.append(Placed(column, x, width))
        x += width + GAP
    frozen = [p for p in placed if p.column.frozen]
    layout = Layout(tuple(placed), max(view_width, x - GAP + AIR), frozen[-1].end + GAP if frozen else GUTTER)
    return _to_the_last_stop(layout, view_width)


def _to_the_last_stop(layout: Layout, view_width: int) -> Layout:
    """The layout with its last column so wide that scrolling ends at a stop: no column is ever cut at its left."""
    hidden = layout.width - view_width
    stop = next((stop for stop in layout.stops if stop >= hidden), hidden)
    if hidden <= 0 or stop == hidden:
        return layout
    last = layout.placed[-1]
    wider = replace(last, width=min(last.width + stop - hidden, max(last.width, last.column.most)))
    return replace(layout, placed=(*layout.placed[:-1], wider), width=stop + view_width)


def _needed(columns: Sequence[Column]) -> int:
    return GUTTER + sum(c.width for c in columns) + GAP * max(0, len(columns) - 1) + AIR


def _fitting(view_width: int, columns: Sequence[Column]) -> Sequence[Column]:
    count = len(columns)
    while count > 1 and _needed(columns[:count]) > view_width:
        count -= 1
    return columns[:count]


def _grown(columns: Sequence[Column], spare: int) -> list[int]:
    widths = [c.width for c in columns]
    while spare > 0:
        hungry = [i for i, c in enumerate(columns) if c.grows and widths[i] < c.most]
        if not hungry:
            break
        # Those furthest behind their share grow first; cell by cell there is nothing left to round.
        smallest = min(hungry, key=lambda i: (widths[i] - columns[i].width) / columns[i].grows)
        widths[smallest] += 1
        spare -= 1
    return widths
