"""A sheet over the table on which something is chosen."""

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

Choice = TypeVar("Choice")


class PickerScreen(ModalScreen[Choice | None]):
    """Closes with the choice; None: all stays as it was."""

    TITLE_TEXT: ClassVar[str] = ""
    HINT: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel", id="picker.leave")]

    def compose(self) -> ComposeResult:
        """What is chosen from, in a box."""
        with Vertical(id="picker") as box:
            box.border_title = self.title_text
            box.border_subtitle = "esc leaves"
            yield from self.compose_choice()
            yield Static(self.HINT, markup=False, id="picker-hint")

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
