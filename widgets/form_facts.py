"""What a form shows beside its fields: what it is about, what to know before typing, what to choose from."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.widget import Widget
from textual.widgets import RadioButton, RadioSet, Static

from app.text import SafeText
from widgets.badges import Badge


class FormFact(Widget):
    """A fact in the place of a field."""

    DEFAULT_CSS = """
    FormFact {
        layout: horizontal;
        height: 1;
        .form-fact--label { width: 15; color: $text-muted; padding-left: 1; }
        .form-fact--value { width: 1fr; padding-left: 2; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, label: str, value: SafeText, badge: Badge | None = None) -> None:
        super().__init__()
        self._label = label
        self._value = value
        self._badge = badge

    def compose(self) -> ComposeResult:
        """The label beside the value, its badge behind it."""
        badge = ("  ", (self._badge.text, self._badge.style)) if self._badge else ()
        yield Static(self._label, classes="form-fact--label", markup=False)
        yield Static(Content.assemble(self._value, *badge), classes="form-fact--value")


class FormNotice(Static):
    """What a person has to know before typing."""

    DEFAULT_CSS = """
    FormNotice { margin: 0 1 1 1; padding: 0 1; border-left: outer $warning; color: $foreground; }
    """

    def __init__(self, text: SafeText) -> None:
        super().__init__(Content(text))


class FormChoice(Widget):
    """One of a few things, none of them chosen beforehand."""

    DEFAULT_CSS = """
    FormChoice {
        height: auto;
        margin: 1 0;
        RadioSet { border: none; width: 1fr; padding: 0 1; background: $surface; &:focus { border: none; } }
        RadioButton { background: $surface; border: none; width: 1fr; }
    }
    """

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self._labels = labels

    def compose(self) -> ComposeResult:
        """A line each."""
        with RadioSet():
            for label in self._labels:
                yield RadioButton(Content(label))
