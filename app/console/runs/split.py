"""How the table and the pane of the run under its cursor share the screen."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from textual.containers import Container
from textual.geometry import Size
from textual.reactive import var
from textual.widget import Widget

from widgets.runs.pane import RunPane
from widgets.runs.table import RunTable

SplitSize = Literal["small", "normal", "half", "whole"]
SIZES: Final[tuple[SplitSize, ...]] = get_args(SplitSize)
"""The pane's sizes, smallest first; `whole` leaves no room for the table."""

WIDE: Final = 120
"""From this width on the pane may be beside the table."""
TALL: Final = 32
"""From this height on there is room for the pane below the table."""
LEAST: Final = 40
"""The fewest cells of a pane beside the table."""
MOST: Final = 76
"""The most cells of a pane beside the table, unless the user chose more."""
SHARE: Final = 0.35
BELOW: Final[dict[SplitSize, int]] = {"small": 8, "normal": 14}
"""Lines of a pane below the table."""
STRIP: Final = 3
AROUND: Final = 8
"""Lines that are neither table nor pane."""


@dataclass(frozen=True, slots=True)
class PanePlacement:
    """The place of the pane, and its cells there."""

    where: Literal["beside", "below", "strip", "alone"]
    cells: int = 0
    """Columns beside the table, lines below it."""


def placement(size: SplitSize, screen: Size, least_table: int) -> PanePlacement:
    """The place of a pane of this size; beside the table only if that hides none of its columns."""
    width, height = screen
    room = width - least_table
    if size == "whole":
        return PanePlacement("alone")
    if width >= WIDE and room >= LEAST:
        usual = min(max(LEAST, int(width * SHARE)), MOST, room)
        return PanePlacement("beside", {"small": LEAST, "normal": usual}.get(size, width // 2))
    if size == "half":
        return PanePlacement("below", max(BELOW["small"], (height - AROUND) // 2))
    return PanePlacement("below", BELOW[size]) if height >= TALL else PanePlacement("strip", STRIP)


class SplitView(Container):
    """The table, and the pane beside or below it."""

    pane_size: var[SplitSize] = var("normal")
    has_pane: var[bool] = var(default=True)

    def __init__(self, table: RunTable, pane: RunPane, pane_size: str, *, has_pane: bool) -> None:
        """Prepare; an unknown size counts as normal."""
        super().__init__(id="runs")
        self._table, self._pane = table, pane
        self._screen_size = Size()
        known: SplitSize = next((known for known in SIZES if known == pane_size), "normal")
        self.set_reactive(SplitView.pane_size, known)
        self.set_reactive(SplitView.has_pane, has_pane)
        self.watch_has_pane(has_pane)

    def compose(self) -> Iterable[Widget]:
        """Compose both."""
        yield self._table
        yield self._pane

    def watch_has_pane(self, has_pane: bool) -> None:
        """Show or hide the pane; a class, since `display` would show it again while there is no run at all."""
        self.set_class(not has_pane, "-no-detail")

    def watch_pane_size(self, before: SplitSize, _: SplitSize) -> None:
        """Share the screen anew; the table has the focus once there is one."""
        self.fit()
        if before == "whole":
            self._table.focus()

    def fit(self, screen: Size | None = None) -> None:
        """Divide a screen of this size between the two; None: the same one as before."""
        self._screen_size = screen or self._screen_size
        placed = placement(self.pane_size, self._screen_size, self._table.least_width)
        pane = self._pane
        for where in ("beside", "alone"):
            self.set_class(placed.where == where, f"-{where}")
        pane.shape("strip" if placed.where == "strip" else "column")
        pane.styles.width = placed.cells if placed.where == "beside" else "1fr"
        pane.styles.height = placed.cells if placed.where in {"below", "strip"} else "1fr"
        self._table.squeeze(is_squeezed=placed.where == "beside")
        if placed.where == "alone":
            pane.focus()
        elif pane.has_focus and not pane.can_focus:
            self._table.focus()

    def resize_pane(self, by: int) -> None:
        """Make the pane larger (1) or smaller (-1): the next size that makes a difference here."""
        placements = [placement(size, self._screen_size, self._table.least_width) for size in SIZES]
        here = SIZES.index(self.pane_size)
        others = range(here + 1, len(SIZES)) if by > 0 else range(here - 1, -1, -1)
        found = next((index for index in others if placements[index] != placements[here]), None)
        if found is not None:
            self.pane_size = SIZES[found]
