"""What lies over a room and is left by a click beside it, as by escape: nobody without a keyboard is held in it."""

from typing import ClassVar, TypeVar

from textual import events
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style

Answer = TypeVar("Answer")


def clicked(words: Content, action: str) -> Content:
    """The words; a click on them does what they say."""
    return words.stylize(Style.from_meta({"@click": action}))


class Sheet(ModalScreen[Answer]):
    """A box over the room; forms are none, since they have buttons and hold what was typed."""

    LEAVE: ClassVar[str] = "leave"
    """What escape does."""

    async def on_click(self, event: events.Click) -> None:
        """A click on the room behind it means that room."""
        widget, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if widget is self:
            await self.run_action(self.LEAVE)
