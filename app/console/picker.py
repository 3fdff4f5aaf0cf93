"""A sheet over the table on which something is chosen."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.console.sheet import Sheet, clicked

Choice = TypeVar("Choice")


class PickerScreen(Sheet[Choice | None]):
    """Closes with the choice; None: all stays as it was."""

    TITLE_TEXT: ClassVar[str] = ""
    HINT: ClassVar[str] = ""
    """What keys do, with dots between them."""
    DEEDS: ClassVar[Mapping[str, str]] = {}
    """The actions of those that a click on them does as well."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel", id="picker.leave")]

    def compose(self) -> ComposeResult:
        """What is chosen from, in a box."""
        with Vertical(id="picker") as box:
            box.border_title = self.title_text
            box.border_subtitle = "esc leaves"
            yield from self.compose_choice()
            yield Static(self._hint(), markup=False, id="picker-hint")

    @property
    def title_text(self) -> str:
        """What is chosen."""
        return self.TITLE_TEXT

    def compose_choice(self) -> ComposeResult:
        """What is chosen from."""
        yield from ()

    def action_leave(self) -> None:
        """Closes and changes nothing."""
        self.dismiss(None)

    def _hint(self) -> Content:
        return Content(" · ").join(self._hint_of(part) for part in self.HINT.split(" · "))

    def _hint_of(self, part: str) -> Content:
        key_action = self.DEEDS.get(part)
        return Content(part) if key_action is None else clicked(Content(part), f"screen.{key_action}")
