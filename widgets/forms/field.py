"""One field of a form: a label, a control, and one line of hints or problems below it."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from app.text import SafeText, safe_text
from widgets.badges import STYLES, Tone
from widgets.forms.inputs import CharactersRemoved, ChoiceInput, LineInput, ParagraphInput, printable

_MARKS: Final[dict[Tone, str]] = {"good": "✓ ", "warn": "! ", "bad": "✗ "}
"""What a line begins with, so that its colour is not needed; other tones have no mark."""
_SUGGESTIONS_SHOWN: Final = 4


def toned(text: SafeText, tone: Tone) -> Content:
    """The text in its tone's mark and colour."""
    # Quiet is what the stylesheet says: the theme knows its own shade.
    return Content.assemble((f"{_MARKS.get(tone, '')}{text}" if text else "", "" if tone == "quiet" else STYLES[tone]))


def _fitting(text: SafeText, width: int) -> SafeText:
    """The text, or its first sentence where there is no room for the rest."""
    if cell_len(text) <= width:
        return text
    return safe_text(text.partition(". ")[0])


class FormField(Widget):
    """The label, the line below, and when to speak: after the field was touched, never before."""

    DEFAULT_CSS = """
    FormField {
        layout: horizontal;
        height: auto;
        .form-field--label { width: 15; color: $foreground 70%; padding-left: 1; }
        &.-focused .form-field--label { color: $foreground; text-style: bold; }
        .form-field--body { height: auto; width: 1fr; }
        .form-field--message {
            height: 1;
            padding-left: 2;
            color: $foreground 70%;
            text-wrap: nowrap;
            text-overflow: ellipsis;
        }
        Input, TextArea {
            border: none;
            border-left: outer $panel;
            background: $panel;
            padding: 0 1;
            &:focus { border: none; border-left: outer $primary; background-tint: $foreground 5%; }
        }
        Input { height: 1; }
        TextArea { height: 1fr; min-height: 3; }
        &.-error Input, &.-error TextArea { border-left: outer $error; }
    }
    """

    @dataclass
    class Changed(Message):
        """What the field holds was changed by a person."""

        field: str

    @dataclass
    class Left(Message):
        """The focus moved on from the field."""

        field: str

    def __init__(self, key: str, label: str, hint: str) -> None:
        super().__init__(id=f"field-{key}")
        self.key = key
        """The field's name in the request."""
        self.label = label
        self._hint: tuple[SafeText, Tone] = (safe_text(hint), "quiet")
        self._problem: SafeText | None = None
        self._shown: tuple[SafeText, Tone] = self._hint
        self._known = ""
        """What it held when a change was last announced."""
        self.touched = False
        """Whether a person has been here: only then is a problem shown."""

    def compose(self) -> ComposeResult:
        """The label beside the control and its line."""
        self._shown = self._hint
        yield Static(self.label, classes="form-field--label", markup=False)
        with Vertical(classes="form-field--body"):
            yield from self.compose_control()
            yield Static(toned(*self._hint), classes="form-field--message")

    @abstractmethod
    def compose_control(self) -> ComposeResult:
        """What is typed into."""

    @property
    @abstractmethod
    def value(self) -> str:
        """What was typed."""

    @abstractmethod
    def fill(self, value: str) -> None:
        """Replaces what was typed."""

    def rename(self, label: str) -> None:
        """Gives it another label."""
        self.label = label
        self.query_one(".form-field--label", Static).update(Content(label))

    def take_focus(self) -> None:
        """Puts the cursor behind what was typed, to go on with it; tabbing in selects it, to replace it."""
        control = self.query("Input, TextArea").first()
        if isinstance(control, Input):
            control.select_on_focus = False
            self.call_after_refresh(self._select_again, control)
        control.focus()

    def _select_again(self, control: Input) -> None:
        control.select_on_focus = True

    def say(self, text: SafeText, tone: Tone = "quiet") -> None:
        """Sets what the line says while there is no problem."""
        self._hint = (text, tone)
        self._redraw()

    def complain(self, problem: SafeText | None) -> None:
        """Shows what is wrong; None: nothing is."""
        self._problem = problem
        self.set_class(problem is not None, "-error")
        self._redraw()

    def _redraw(self) -> None:
        line: tuple[SafeText, Tone] = self._hint if self._problem is None else (self._problem, "bad")
        if self.is_mounted and line != self._shown:
            self._shown = line
            message = self.query_one(".form-field--message", Static)
            text = _fitting(line[0], message.content_size.width - len(_MARKS.get(line[1], "")))
            # Its height is one line whatever it says: no layout, which would cost more than all the rest of a key.
            message.update(toned(text, line[1]), layout=False)

    def _edited(self) -> None:
        # A control also announces its initial value, which was not typed.
        if self.value == self._known:
            return
        self._known = self.value
        self.touched = True
        self.post_message(self.Changed(self.key))

    def on_descendant_focus(self) -> None:
        """The label says where the keys go."""
        self.add_class("-focused")

    def on_descendant_blur(self) -> None:
        """Leaving the field counts as having been there, where something was typed."""
        self.remove_class("-focused")
        if self.value:
            self.touched = True
        self.post_message(self.Left(self.key))

    @on(CharactersRemoved)
    def _cleaned(self, message: CharactersRemoved) -> None:
        message.stop()
        what = "character" if message.count == 1 else "characters"
        self.say(safe_text(f"{message.count} {what} that cannot be shown, or did not fit, were left out."), "warn")


class LineField(FormField):
    """A field of one line."""

    def __init__(self, key: str, label: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__(key, label, hint)
        self._control = LineInput(value, placeholder)
        self._known = self._control.value

    def compose_control(self) -> ComposeResult:
        """One line."""
        yield self._control

    @property
    def value(self) -> str:
        """What was typed."""
        return self._control.value

    def fill(self, value: str) -> None:
        """Replaces what was typed."""
        self._control.value = value
        self._control.cursor_position = len(self._control.value)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._edited()


class ChoiceField(LineField):
    """A field of one line with suggestions."""

    def __init__(self, key: str, label: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__(key, label, hint, value=value, placeholder=placeholder)
        self._choice_control = ChoiceInput(value, placeholder)
        self._control = self._choice_control
        self._resting_hint = safe_text(hint)

    def offer(self, choices: tuple[str, ...]) -> None:
        """Takes the choices, best first."""
        self._choice_control.offer(choices)
        self._show_matches()

    @on(Input.Changed)
    def _narrow(self) -> None:
        self._show_matches()

    def _show_matches(self) -> None:
        found = [choice for choice in self._choice_control.matches() if choice != self.value]
        if not found:
            self.say(self._resting_hint)
            return
        more = f"  +{len(found) - _SUGGESTIONS_SHOWN}" if len(found) > _SUGGESTIONS_SHOWN else ""
        self.say(safe_text(f"↓ {'  '.join(found[:_SUGGESTIONS_SHOWN])}{more}"))


class ParagraphField(FormField):
    """A field of many lines; it takes the height that is left."""

    DEFAULT_CSS = """
    ParagraphField { height: 1fr; min-height: 5; .form-field--body { height: 1fr; } }
    """

    def __init__(self, key: str, label: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__(key, label, hint)
        self._control = ParagraphInput(printable(value), placeholder=Content(placeholder), highlight_cursor_line=False)
        self._known = self._control.text

    def compose_control(self) -> ComposeResult:
        """Many lines."""
        yield self._control

    @property
    def value(self) -> str:
        """What was typed."""
        return self._control.text

    def fill(self, value: str) -> None:
        """Replaces what was typed; undo brings it back."""
        self._control.replace(value, self._control.document.start, self._control.document.end)
        self._control.move_cursor(self._control.document.end)

    def insert(self, text: str) -> None:
        """Puts text in at the cursor."""
        self._control.insert(text)

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._edited()


class SecretInput(LineInput):
    """A one-line input that shows dots. Textual's own would copy what is behind them."""

    def __init__(self) -> None:
        super().__init__(password=True)

    def action_copy(self) -> None:
        """Nothing: a clipboard is read by every program, and kept by some."""

    def action_cut(self) -> None:
        """Takes the selection away, without keeping it."""
        self.delete_selection()


class SecretField(LineField):
    """A labelled secret."""

    def __init__(self, key: str, label: str, hint: str) -> None:
        super().__init__(key, label, hint)
        self._control = SecretInput()
