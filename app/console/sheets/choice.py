"""The sheet that offers a few choices, one of which is taken with a key."""

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.console.sheets import Options, PickerScreen

T = TypeVar("T")


class ChoiceSheet(PickerScreen[T], Generic[T]):
    """Closes with the value of the choice."""

    HINT = "enter or a digit chooses"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(digit), f"take({digit})", f"the {digit}. choice", show=False) for digit in range(1, 10)),
    ]

    def __init__(self, title: str, choices: Sequence[tuple[Content, T]]) -> None:
        super().__init__()
        self.TITLE_TEXT = title
        self._choices = choices

    def compose_choice(self) -> ComposeResult:
        """Compose the choices."""
        yield Options(
            *(Option(Content.assemble(f"{number}  ", text)) for number, (text, _) in enumerate(self._choices, 1))
        )

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        self.action_take(message.option_index + 1)

    def action_take(self, number: int) -> None:
        """Close with the choice of this number, if there is one."""
        if number <= len(self._choices):
            self.dismiss(self._choices[number - 1][1])
