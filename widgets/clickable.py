"""A line of parts that can be clicked."""

from collections.abc import Callable, Iterable

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

ClickablePart = tuple[Content, Message | None]
"""A text, and the message that a click on it posts."""


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
