"""How the table and the pane of the run under its cursor share the screen."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, get_args

from textual.binding import Binding
from textual.containers import Container
from textual.geometry import Size

from app.console.runs.preferences import PreferencesWriter
from app.console.runs.screen_context import ScreenContext
from app.console.session import user_preferences
from widgets.runs.pane import RunPane
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from collections.abc import Callable

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

_hidden = partial(Binding, show=False)
SPLIT_BINDINGS: Final = (
    _hidden("plus", "split('more')", "more detail", key_display="+", tooltip="Up to all", id="runs.split_more"),
    _hidden("underscore", "split('less')", "less detail", key_display="_", id="runs.split_less"),
)


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


class SplitView:
    """Shares the screen between table and pane, as its size and the user want it."""

    def __init__(
        self, context: ScreenContext, preferences: PreferencesWriter, body: Container, table: RunTable, pane: RunPane
    ) -> None:
        """Start with the last size; `body` holds both."""
        self._context = context
        self._preferences = preferences
        self._body = body
        self._table = table
        self._pane = pane
        before = user_preferences.read(context.session.settings).split
        self._size: SplitSize = next((known for known in SIZES if known == before), "normal")
        self._screen = Size()
        self._actions: dict[str, Callable[[], None]] = {
            "more": lambda: self._step(1),
            "less": lambda: self._step(-1),
            "pane": self._toggle,
            "raw": pane.toggle_raw,
        }

    def do(self, name: str) -> None:
        """Run an action of the bindings."""
        self._actions[name]()

    def begin(self, screen: Size) -> None:
        """Share the first frame's screen; the pane is shown if it was last time."""
        self._show_pane(is_shown=self._preferences.now.detail)
        self.fit(screen)

    @property
    def is_whole(self) -> bool:
        """Whether the pane has all the room."""
        return self._size == "whole"

    def fit(self, screen: Size) -> None:
        """Divide a screen of this size between the table and the pane."""
        self._screen = screen
        placed = placement(self._size, screen, self._table.least_width)
        body, pane = self._body, self._pane
        for where in ("beside", "alone"):
            body.set_class(placed.where == where, f"-{where}")
        pane.shape("strip" if placed.where == "strip" else "column")
        pane.styles.width = placed.cells if placed.where == "beside" else "1fr"
        pane.styles.height = placed.cells if placed.where in {"below", "strip"} else "1fr"
        self._table.squeeze(is_squeezed=placed.where == "beside")
        if placed.where == "alone":
            pane.focus()
        elif pane.has_focus and not pane.can_focus:
            self._table.focus()

    def refit(self) -> None:
        """Share the same screen after the columns changed."""
        self.fit(self._screen)

    def _step(self, by: int) -> None:
        """Make the pane larger or smaller: the next size that makes a difference here."""
        if not self._preferences.now.detail:
            self._toggle()
            return
        placements = [placement(size, self._screen, self._table.least_width) for size in SIZES]
        here = SIZES.index(self._size)
        others = range(here + 1, len(SIZES)) if by > 0 else range(here - 1, -1, -1)
        found = next((index for index in others if placements[index] != placements[here]), None)
        if found is not None:
            self.take(SIZES[found])

    def take(self, size: SplitSize) -> None:
        """Give the pane this size, now and next time."""
        was_whole, self._size = self.is_whole, size
        self.refit()
        if was_whole and not self.is_whole:
            self._table.focus()
        keep = partial(user_preferences.keep, self._context.session.settings, partial(replace, split=size))
        self._context.start(keep, group="split")

    def _toggle(self) -> None:
        is_shown = not self._preferences.now.detail
        self._show_pane(is_shown=is_shown)
        self._preferences.change(lambda known: replace(known, detail=is_shown))

    def _show_pane(self, *, is_shown: bool) -> None:
        # A class, not `display`: that would show it again while there is no run at all.
        self._body.set_class(not is_shown, "-no-detail")
