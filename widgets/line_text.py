"""Text of which only changed lines are repainted: an age that ticks costs one line, not a page."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.visual import Visual
from textual.widgets import Static


class LineText(Static):
    """Lines of text, replaced all at once."""

    _changed: tuple[int, ...] = ()
    """The lines to repaint during `take`. Empty: all."""
    _stale: frozenset[int] | None = None
    """The lines to render again; None: all."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._lines: Sequence[Content] = ()

    def take(self, lines: Sequence[Content]) -> None:
        """Show these lines; lay out only if their number changed, and repaint only those that differ."""
        before, self._lines = self._lines, lines
        if len(before) == len(lines) and all(map(Content.is_same, before, lines)):
            return
        if len(before) != len(lines) or self._wraps(before) or self._wraps(lines):
            self.update(Content("\n").join(lines))
            return
        pairs = zip(before, lines, strict=True)
        self._changed = tuple(y for y, (old, new) in enumerate(pairs) if not old.is_same(new))
        if self._changed:
            self.update(Content("\n").join(lines), layout=False)
            self._changed = ()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Repaint; during `take` only the lines that differ."""
        if self._changed and not regions:
            width = self.size.width
            regions = tuple(Region(0, y, width, 1) for y in self._changed)
            self._stale = None if self._stale is None else self._stale.union(self._changed)
        else:
            self._stale = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def _render_content(self) -> None:
        strips = self._render_cache.lines
        if self._stale is None or self._render_cache.size != self.size or self.text_selection is not None:
            super()._render_content()
        else:
            for y in self._stale.intersection(range(len(strips))):
                (strip,) = Visual.to_strips(self, self._lines[y], self.size.width, 1, self.visual_style)
                # Text selection needs the line's place in the text.
                strips[y] = strip.apply_offsets(0, y)
            self._dirty_regions.clear()
        self._stale = frozenset()

    def _wraps(self, lines: Sequence[Content]) -> bool:
        """Whether a line takes several lines of the screen, so that its place is not known."""
        return any(cell_len(line.plain) > self.size.width or "\n" in line.plain for line in lines)


class LinePane(VerticalScroll, can_focus=True):
    """Scrolling lines that are made for the pane's width."""

    DEFAULT_CSS = """
    LinePane { scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $panel; }
    LinePane > LineText { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "down", show=False, id="pane.down"),
        Binding("k", "scroll_up", "up", show=False, id="pane.up"),
        Binding("g,home", "edge(False)", "top", show=False, id="pane.top"),
        Binding("G,end", "edge(True)", "bottom", show=False, id="pane.bottom"),
    ]

    def __init__(self, make: Callable[[int], Sequence[Content]], *, id: str) -> None:
        """Prepare; `make` is called with the width in cells."""
        super().__init__(id=id)
        self._make = make

    def compose(self) -> ComposeResult:
        """The text that shows all lines."""
        yield LineText()

    def paint(self) -> None:
        """Make the lines."""
        for text in self.query(LineText):
            text.take(self._make(max(20, self.scrollable_content_region.width)))

    def on_resize(self) -> None:
        """Make the lines for the new width."""
        self.paint()

    def action_edge(self, is_end: bool) -> None:
        """Scroll to the bottom, or to the top, at once."""
        if is_end:
            self.scroll_end(animate=False)
        else:
            self.scroll_home(animate=False)
