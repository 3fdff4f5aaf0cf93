"""The search above a list."""

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from widgets.forms.inputs import LineInput


class ListSearch(LineInput):
    """The search; escape clears it, enter and down go to the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down,tab", "leave(False)", "to the list", key_display="enter", id="search.leave"),
        Binding("escape", "leave(True)", "clear", id="search.clear"),
    ]

    @dataclass
    class Left(Message):
        """The focus goes back to the rows."""

    def __init__(self, placeholders: tuple[str, ...]) -> None:
        """Prepare; the placeholders say what is searched, the longest first."""
        super().__init__(placeholder=placeholders[0], compact=True, select_on_focus=False)
        self._placeholders = placeholders

    def on_resize(self) -> None:
        """Choose the longest placeholder that fits."""
        self.placeholder = next(
            (words for words in self._placeholders if len(words) < self.size.width), self._placeholders[-1]
        )

    def action_leave(self, clear: bool) -> None:
        """Leave the search, after clearing it if asked to."""
        if clear:
            self.value = ""
        self.post_message(self.Left())
