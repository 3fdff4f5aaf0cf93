"""Text that is painted again only where it reads differently: an age that ticks costs a line, not a page."""

from collections.abc import Sequence
from typing import Self

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static


class LineText(Static):
    """Lines that are taken all together, as often as they may have changed."""

    _changed: tuple[Region, ...] = ()
    """While it takes lines: where it paints again. Empty: everywhere."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._lines: Sequence[Content] = ()

    def take(self, lines: Sequence[Content]) -> None:
        """Shows these lines; lays out only if there are more or fewer, and paints only those that differ."""
        before, self._lines = self._lines, lines
        if len(before) != len(lines) or self._wraps(before) or self._wraps(lines):
            self.update(Content("\n").join(lines))
            return
        width = self.size.width
        pairs = zip(before, lines, strict=True)
        self._changed = tuple(Region(0, y, width, 1) for y, (old, new) in enumerate(pairs) if not old.is_same(new))
        if self._changed:
            self.update(Content("\n").join(lines), layout=False)
            self._changed = ()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Paints again: while it takes lines, only those that differ."""
        return super().refresh(*(regions or self._changed), repaint=repaint, layout=layout, recompose=recompose)

    def _wraps(self, lines: Sequence[Content]) -> bool:
        """Whether a line takes more than one of the screen's: which of them it is on then is not known."""
        return any(cell_len(line.plain) > self.size.width or "\n" in line.plain for line in lines)
