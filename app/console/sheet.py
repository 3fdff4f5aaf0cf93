"""What lies over a screen: left by a click beside it, as by escape, and often a choice of something."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style
from textual.widgets import OptionList, Static

from app.console.session import guarded_dispatch

Answer = TypeVar("Answer")
Choice = TypeVar("Choice")


def clicked(words: Content, action: str) -> Content:
    """The words; a click on them does what they say."""
    return words.stylize(Style.from_meta({"@click": action}))


class Sheet(ModalScreen[Answer]):
    """A box over the screen; forms are none, since they have buttons and hold what was typed."""

    LEAVE: ClassVar[str] = "leave"
    """What escape does."""

    _dispatch_message = guarded_dispatch

    async def on_click(self, event: events.Click) -> None:
        """A click on the screen behind it means that screen."""
        widget, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if widget is self:
            await self.run_action(self.LEAVE)


class Options(OptionList):
    """A list of options for the keys of this console."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "down", show=False, id="picker.cursor_down"),
        Binding("k", "cursor_up", "up", show=False, id="picker.cursor_up"),
    ]


class PickerScreen(Sheet[Choice | None]):
    """Closes with the choice; None: all stays as it was."""

    TITLE_TEXT: str = ""
    """What is chosen."""
    HINT: str = ""
    """What keys do, with dots between them."""
    CLICKABLE: ClassVar[Mapping[str, str]] = {}
    """The parts of the hint that a click does as well, with their actions."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel", id="picker.leave")]

    def compose(self) -> ComposeResult:
        """What is chosen from, in a box."""
        with Vertical(id="picker") as box:
            box.border_title = self.TITLE_TEXT
            box.border_subtitle = "esc leaves"
            yield from self.compose_choice()
            yield Static(self._hint(), markup=False, id="picker-hint")

    def compose_choice(self) -> ComposeResult:
        """What is chosen from."""
        yield from ()

    def action_leave(self) -> None:
        """Close and change nothing."""
        self.dismiss(None)

    def _hint(self) -> Content:
        return Content(" · ").join(self._hint_of(part) for part in self.HINT.split(" · "))

    def _hint_of(self, part: str) -> Content:
        action = self.CLICKABLE.get(part)
        return Content(part) if action is None else clicked(Content(part), f"screen.{action}")
