"""Sheets: boxes over a screen, closed by escape or a click beside them, often with a choice."""

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style
from textual.widgets import OptionList, Static

from app.console.guard import guarded_event
from app.text import safe_text
from widgets.badges import STYLES, Tone

AnswerT = TypeVar("AnswerT")
ChoiceT = TypeVar("ChoiceT")
OVER_CSS: Final = Path(__file__).with_name("over.tcss")
"""The styles of what opens over a screen; a start does not read them."""


def clicked(words: Content, action: str) -> Content:
    """Return the words as a link that runs the action."""
    return words.stylize(Style.from_meta({"@click": action}))


class Sheet(ModalScreen[AnswerT]):
    """A box over the screen. Forms are not sheets: they have buttons and keep what was typed."""

    CSS_PATH = OVER_CSS
    LEAVE: ClassVar[str] = "leave"
    """The action of escape."""

    on_event = guarded_event

    async def on_click(self, event: events.Click) -> None:
        """Leave the sheet after a click beside it."""
        widget, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if widget is self:
            await self.run_action(self.LEAVE)


class Options(OptionList):
    """A list of options with the console's keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "down", show=False, id="picker.cursor_down"),
        Binding("k", "cursor_up", "up", show=False, id="picker.cursor_up"),
    ]


class SheetNote(Static):
    """The line of a sheet that says what is wrong, what a choice means, or how far its work is."""

    def __init__(self) -> None:
        super().__init__(markup=False, id="picker-note")

    def say(self, text: str, tone: Tone = "quiet") -> None:
        """Replace the line; foreign text in it need not be safe yet."""
        self.update(Content.styled(safe_text(text), STYLES[tone]))


class PickerScreen(Sheet[ChoiceT | None]):
    """Closes with the choice; None: nothing changes."""

    TITLE_TEXT: str = ""
    """The sheet's title."""
    HINT: str = ""
    """The hint about keys, with dots between them."""
    CLICKABLE: ClassVar[Mapping[str, str]] = {}
    """Parts of the hint that can be clicked, with their actions."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel", id="picker.leave")]

    def compose(self) -> ComposeResult:
        """Compose the choice in a box."""
        with Vertical(id="picker") as box:
            box.border_title = self.TITLE_TEXT
            box.border_subtitle = "esc leaves"
            yield from self.compose_choice()
            yield Static(self._hint(), markup=False, id="picker-hint")

    def compose_choice(self) -> ComposeResult:
        """Compose the choice."""
        yield from ()

    def action_leave(self) -> None:
        """Close without a change."""
        self.dismiss(None)

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str = "", group: str) -> None:
        """Run the work as a worker of the app: leaving the sheet does not stop it half-way."""
        self.app.run_worker(cast("Any", work), name, group)

    def done(self, said: "ChoiceT") -> None:
        """Close with the result of the work; if the sheet was left before, show it in a toast."""
        if self.is_current:
            self.dismiss(said)
        else:
            self.app.notify(safe_text(str(said)), markup=False)

    def failed(self, why: str) -> None:
        """Say why the work failed: in the note or, once the sheet is left, in a toast."""
        if self.is_current:
            self.query_one(SheetNote).say(why, "bad")
        else:
            self.app.notify(safe_text(why), severity="error", markup=False)

    def _hint(self) -> Content:
        return Content(" · ").join(self._hint_of(part) for part in self.HINT.split(" · "))

    def _hint_of(self, part: str) -> Content:
        action = self.CLICKABLE.get(part)
        return Content(part) if action is None else clicked(Content(part), f"screen.{action}")
