"""Text that is repainted only if it changes, so that an age repaints one line and not a page; and clickable lines."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import Reactive, reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual, VisualType
from textual.widget import Widget
from textual.widgets import Static

from app.engine.text import SafeText
from widgets.kit import SCROLL_KEYS, hidden
from widgets.kit.badges import STYLES


def unscrolled_size() -> Reactive[Size]:
    """A `virtual_size` that does not affect layout: setting a new one does not lay out the screen."""
    return Reactive(Size(0, 0), layout=False)


class SteadyText(Static):
    """A text that is set with each tick or poll; setting an equal text costs nothing."""

    virtual_size = unscrolled_size()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(markup=False, id=id)

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        shown = self.content
        if not (isinstance(content, Content) and isinstance(shown, Content) and content.is_same(shown)):
            super().update(content, layout=layout)


class LineText(Widget):
    """Lines of text, one screen line each, replaced together."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[Content] = ()

    def show(self, lines: Sequence[Content]) -> None:
        """Show these lines; lay out only if the height changes, and repaint only changed lines."""
        before = self._lines
        self._lines = lines
        if max(len(lines), self.container_size.height) != self.size.height:
            self.refresh(layout=True)
            return
        common = min(len(before), len(lines))
        changed = [y for y in range(common) if not lines[y].is_same(before[y])]
        if changed := [*changed, *range(common, max(len(before), len(lines)))]:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, viewport, width
        return len(self._lines)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract("\n".join(line.plain for line in self._lines)), "\n"

    def render_line(self, y: int) -> Strip:
        """One line, with its position in the text for selections."""
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        line = self._lines[y]
        if self.text_selection is not None and (span := self.text_selection.get_span(y)) is not None:
            selected = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            line = line.stylize(selected, span[0], len(line) if span[1] == -1 else span[1])
        (strip,) = Visual.to_strips(self, line, self.size.width, 1, self.visual_style, apply_selection=False)
        return strip.apply_offsets(0, y)


class LinePane(VerticalScroll, can_focus=True):
    """Scrolling lines, built for the pane's width."""

    DEFAULT_CSS = """
    LinePane {
        /* A bar that comes and goes must not change the width that the lines are made for. */
        scrollbar-gutter: stable; scrollbar-size-vertical: 1;
        scrollbar-background: $background; scrollbar-color: $panel;
    }
    /* As high as the pane at least: fewer lines than before need no layout, which Textual does twice. */
    LinePane > LineText { height: auto; min-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLL_KEYS,
        hidden("g,home", "edge(False)", "top", id="pane.top"),
        hidden("G,end", "edge(True)", "bottom", id="pane.bottom"),
    ]

    def __init__(self, make: Callable[[int], Sequence[Content]], *, id: str | None = None) -> None:
        """Prepare; `make` is called with the width in cells."""
        super().__init__(id=id)
        self._make = make

    def compose(self) -> ComposeResult:
        yield LineText()

    def paint(self) -> None:
        """Build the lines, wrapping those that are wider than the pane."""
        width = max(20, self.scrollable_content_region.width)
        # The text widget is missing before the pane is composed and while the console closes.
        for text in self.query(LineText):
            lines = self._make(width)
            text.show([part for line in lines for part in (line.wrap(width) if line.cell_length > width else (line,))])

    def on_resize(self) -> None:
        self.paint()

    def action_edge(self, is_end: bool) -> None:
        (self.scroll_end if is_end else self.scroll_home)(animate=False)


def clickable(words: Content, action: str, *parameters: object) -> Content:
    """A link that runs an action such as `screen.views`; foreign parameters are passed separately."""
    return words.stylize(Style.from_meta({"@click": (action, parameters) if parameters else action}))


class ClickableLine(Widget):
    """Draws its parts from left to right; a click on a `clickable` one runs its action."""

    virtual_size = unscrolled_size()

    auto_links: reactive[bool] = reactive(default=False)
    """Links are drawn as other text."""

    @abstractmethod
    def parts(self) -> Iterable[Content]:
        """The parts of the line."""

    def render(self) -> Content:
        return Content.assemble(*self.parts())


class Chip(Struct, frozen=True):
    """One filter that a click changes."""

    action: str
    """The screen's action that changes the filter."""
    text: SafeText
    """The filter and its value as shown: `what any`."""
    is_set: bool = False


class ChipBar(ClickableLine):
    """A line of clickable chips."""

    DEFAULT_CSS = "ChipBar { width: auto; height: 1; }"
    chips: reactive[tuple[Chip, ...]] = reactive((), layout=True)

    def parts(self) -> Iterator[Content]:
        for chip in self.chips:
            text = Content.styled(chip.text, "$accent bold" if chip.is_set else STYLES["quiet"])
            yield clickable(text, f"screen.{chip.action}")
            yield Content("  ")
