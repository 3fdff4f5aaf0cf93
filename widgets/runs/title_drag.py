"""How the pointer rearranges the run table's columns."""

from typing import Final

from storage.lazy_dataclass import dataclass
from widgets.runs.columns import GAP, ColumnChoice, Layout, PlacedColumn

_DRAG_CELLS: Final = 2
"""The fewest cells a title is dragged before it moves, so that an unsteady click moves nothing."""


@dataclass(frozen=True, slots=True)
class TitleDrag:
    """A drag of a title or of its edge, and the columns when it began."""

    place: PlacedColumn
    x: int
    """The cell where the drag began."""
    is_edge: bool
    """Whether the gap behind the title is dragged, which resizes the column; else the column moves."""
    layout: Layout
    choice: ColumnChoice

    def dragged_to(self, x: int) -> ColumnChoice:
        """The columns with the pointer at this cell."""
        key = self.place.column.key
        if self.is_edge:
            return self.choice if x == self.x else self.choice.sized(key, self.place.width + x - self.x)
        over = self.layout.at(x)
        if over is None or abs(x - self.x) < _DRAG_CELLS:
            return self.choice
        return self.choice.moved(key, over.column.key)


class TitlePointer:
    """The pointer over the titles, from its press to its release."""

    def __init__(self) -> None:
        self._drag: TitleDrag | None = None
        self.has_dragged = False
        """Whether it has moved or resized a column since it was pressed."""

    def press(self, title: TitleDrag | None) -> bool:
        """Begin at a title or its edge; whether there is one."""
        self._drag, self.has_dragged = title, False
        return title is not None

    def drag(self, x: int) -> ColumnChoice | None:
        """The columns with the pointer at this cell; None: nothing is dragged."""
        if self._drag is None:
            return None
        choice = self._drag.dragged_to(x)
        self.has_dragged = self.has_dragged or choice != self._drag.choice
        return choice

    def release(self) -> ColumnChoice | None:
        """End; the columns as they were when it was pressed. None: nothing was dragged."""
        drag, self._drag = self._drag, None
        return drag.choice if drag is not None else None


def title_at(layout: Layout, choice: ColumnChoice, x: int) -> TitleDrag | None:
    """The title or edge at this cell; None: there is neither."""
    place = layout.at(x)
    if place is None:
        return None
    # The edge is the gap: a title may fill its column to the last cell.
    return TitleDrag(place, x, place.end <= x < place.end + GAP, layout, choice)
