"""A line of parts that can be clicked."""

from collections.abc import Iterable

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

Part = tuple[Content, Message | None]
"""What is drawn, and what a click on it posts."""


class ClickableLine(Widget):
    """Draws its parts from left to right; a click posts the message of the part under the pointer."""

    def parts(self) -> Iterable[Part]:
        """The parts as they are now."""
        raise NotImplementedError

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*(content for content, _ in self.parts()))

    def on_click(self, event: events.Click) -> None:
        """Posts the clicked part's message."""
        x = 0
        for content, message in self.parts():
            x += content.cell_length
            if event.x < x:
                if message is not None:
                    self.post_message(message)
                return
