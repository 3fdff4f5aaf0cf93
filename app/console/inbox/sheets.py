"""The sheets of the inbox: until when to snooze, and which of several runs to open."""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import ClassVar, Final, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.console.sheets import Options, PickerScreen

T = TypeVar("T")

MORNING: Final = time(8)
_MONDAY: Final = 7


class ChoiceSheet(PickerScreen[T], Generic[T]):
    """Closes with one of a few choices."""

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
        yield Options(*(Option(Content.assemble(f"{at}  ", text)) for at, (text, _) in enumerate(self._choices, 1)))

    @on(OptionList.OptionSelected)
    def _on_selected(self, message: OptionList.OptionSelected) -> None:
        self.action_take(message.option_index + 1)

    def action_take(self, number: int) -> None:
        """Close with the choice of this number, if there is one."""
        if number <= len(self._choices):
            self.dismiss(self._choices[number - 1][1])


def snoozes(now: datetime) -> tuple[tuple[str, datetime], ...]:
    """The ends of a snooze: an hour, tomorrow morning and Monday morning, by the local clock."""
    today = now.astimezone().date()
    hour, tomorrow = now + timedelta(hours=1), _morning(today + timedelta(days=1))
    monday = _morning(today + timedelta(days=_MONDAY - today.weekday()))
    return (
        (f"an hour, until {hour.astimezone():%H:%M}", hour),
        (f"until tomorrow morning, {tomorrow.astimezone():%a %H:%M}", tomorrow),
        (f"until Monday, {monday.astimezone():%d %b %H:%M}", monday),
    )


def _morning(day: date) -> datetime:
    # A naive time is local: it is eight by the wall clock also after the clocks changed.
    return datetime.combine(day, MORNING).astimezone()
