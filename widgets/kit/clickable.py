"""Lines of parts that can be clicked, such as chips."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from textual.content import Content
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget

from app.engine.text import SafeText
from widgets.kit.badges import STYLES
from widgets.kit.line_text import unscrolled_size

CHIP_GAP: Final = 2
"""Cells behind each chip."""


def clickable(words: Content, action: str, *parameters: object) -> Content:
    """The words as a link that runs an action, as `screen.views`; foreign parameters are given on their own."""
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
        """The line."""
        return Content.assemble(*self.parts())


class Chip(Struct, frozen=True):
    """One filter."""

    action: str
    """The screen's action that changes it."""
    text: SafeText
    """The filter and its value as shown: `what any`."""
    is_set: bool = False


class ChipBar(ClickableLine):
    """A line of clickable chips."""

    DEFAULT_CSS = "ChipBar { width: auto; height: 1; }"
    chips: reactive[tuple[Chip, ...]] = reactive((), layout=True)

    def parts(self) -> Iterator[Content]:
        """A part for each chip, with a gap behind it."""
        for chip in self.chips:
            text = Content.styled(chip.text, "$accent bold" if chip.is_set else STYLES["quiet"])
            yield clickable(text, f"screen.{chip.action}")
            yield Content(" " * CHIP_GAP)
