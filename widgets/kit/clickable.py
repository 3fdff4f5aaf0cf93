"""Lines of parts that can be clicked, such as chips."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.engine.text import SafeText
from widgets.kit.badges import STYLES

ClickablePart = tuple[Content, Message | None]
"""A text, and the message that a click on it posts."""
CHIP_GAP: Final = 2
"""Cells behind each chip."""


class ClickableLine(Widget):
    """Draws its parts from left to right; a click posts the message of the part under the pointer."""

    def __init__(self, parts: Callable[[], Iterable[ClickablePart]], *, id: str | None = None) -> None:
        """Prepare; `parts` is called for each drawing and each click."""
        super().__init__(id=id)
        self._parts = parts

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*(content for content, _ in self._parts()))

    def on_click(self, event: events.Click) -> None:
        """Post the clicked part's message."""
        x = 0
        for content, message in self._parts():
            x += content.cell_length
            if event.x < x:
                if message is not None:
                    self.post_message(message)
                return


class Chip(Struct, frozen=True):
    """One filter."""

    name: str
    """The name that the program uses for it."""
    text: SafeText
    """The filter and its value as shown: `what any`."""
    is_set: bool = False


class ChipBar(ClickableLine):
    """A line of clickable chips."""

    DEFAULT_CSS = "ChipBar { width: auto; height: 1; }"

    @dataclass
    class Clicked(Message):
        """A chip was clicked."""

        name: str

    def __init__(self, *, id: str) -> None:
        super().__init__(self.parts, id=id)
        self._chips: tuple[Chip, ...] = ()

    def show(self, chips: tuple[Chip, ...]) -> None:
        """Show the chips."""
        if chips != self._chips:
            self._chips = chips
            self.refresh(layout=True)

    def parts(self) -> Iterator[ClickablePart]:
        """A part for each chip, with a gap behind it."""
        for chip in self._chips:
            yield Content.styled(chip.text, "$accent bold" if chip.is_set else STYLES["quiet"]), self.Clicked(chip.name)
            yield Content(" " * CHIP_GAP), None
