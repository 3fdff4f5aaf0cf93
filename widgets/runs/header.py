"""The run table's titles under the pointer: a click sorts, a drag moves, a drag of an edge makes wider."""

from dataclasses import dataclass
from typing import Final

from widgets.runs.column_choice import ColumnChoice
from widgets.runs.columns import GAP, Layout, Placed

_HOLD: Final = 2
"""Cells that a title has to be dragged before it moves: a click may tremble."""


@dataclass(frozen=True, slots=True)
class Grip:
    """Where the titles were taken hold of, and how they stood then."""

    place: Placed
    x: int
    """Cell of the line."""
    is_edge: bool
    """The space behind the title, which makes its column wider; else the title itself."""
    layout: Layout
    choice: ColumnChoice

    def dragged_to(self, x: int) -> ColumnChoice:
        """The columns, once the pointer is at this cell of the line."""
        key = self.place.column.key
        if self.is_edge:
            return self.choice if x == self.x else self.choice.sized(key, self.place.width + x - self.x)
        over = self.layout.at(x)
        if over is None or abs(x - self.x) < _HOLD:
            return self.choice
        return self.choice.moved(key, over.column.key)


def grip(layout: Layout, choice: ColumnChoice, x: int) -> Grip | None:
    """What is at a cell of the titles' line; None: nothing."""
    place = layout.at(x)
    if place is None:
        return None
    # A title that fills its column to the last cell still leaves the gap behind it to take hold of.
    return Grip(place, x, place.end <= x < place.end + GAP, layout, choice)
