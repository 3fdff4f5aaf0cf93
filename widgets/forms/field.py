"""The fields of forms: a label, a control, and one line of hints or problems below it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from app.engine.text import safe_text
from storage.records.organization import AgentInput
from widgets.forms.inputs import CharactersRemoved, ChoiceInput, LineInput, ParagraphInput, printable
from widgets.kit import after_refresh
from widgets.kit.badges import STYLES, Tone
from widgets.kit.cells import shorten

_MARKS: Final[dict[Tone, str]] = {"good": "✓ ", "warn": "! ", "bad": "✗ "}
"""The mark before a line, so that colour only repeats it; other tones have none."""
_SUGGEST: Final = "↓ "
LABEL: Final = 15
"""Cells of a field's label."""
_SUGGESTIONS_SHOWN: Final = 4


def toned_text(text: str, tone: Tone) -> Content:
    """The text, made safe, with its tone's mark and colour."""
    marked = f"{_MARKS.get(tone, '')}{safe_text(text)}" if text else ""
    # Quiet text keeps the style sheet's colour.
    return Content.assemble((marked, "" if tone == "quiet" else STYLES[tone]))


class FormField(Widget):
    """A label, a control and the line below; problems are shown only after the field was touched."""

    DEFAULT_CSS = Path(__file__).with_name("field.tcss").read_text("utf-8")

    @dataclass
    class Changed(Message):
        """The user changed the field's value."""

        field: str

    class Left(Message):
        """The focus left the field."""

    def __init__(self, key: str, label: str, hint: str, control: LineInput | ParagraphInput) -> None:
        super().__init__(id=f"field-{key}")
        self._control = control
        self.key = key
        self.label = label
        self._hint: tuple[str, Tone] = (hint, "quiet")
        self._problem: str | None = None
        self._resting_hint = hint
        self._known = self.value
        """The value that was last announced."""
        self.touched = False
        """Whether the user has left the field or typed in it: only then are problems shown."""
        self._is_typing = False
        """Whether the user is typing here: a missing part is then a hint, not a mistake."""
        self._guides = False
        """Whether the hint helps while something is missing."""

    def compose(self) -> ComposeResult:
        self._shown = self._hint
        yield Static(self.label, classes="form-field--label", markup=False)
        with Vertical(classes="form-field--body"):
            yield self._control
            yield Static(toned_text(*self._hint), classes="form-field--message")

    @property
    def value(self) -> str:
        if isinstance(self._control, LineInput):
            return self._control.value
        return self._control.text

    def fill(self, value: str) -> None:
        """Replace the value; undo brings back a longer one."""
        if isinstance(self._control, LineInput):
            self._control.value = value
            self._control.cursor_position = len(self._control.value)
        else:
            self._control.replace(value, self._control.document.start, self._control.document.end)
            self._control.move_cursor(self._control.document.end)

    def take_focus(self) -> None:
        """Focus the control with the cursor behind the value; tabbing in would select the value."""
        if isinstance(self._control, LineInput):
            # Set until the field is left, because the focus arrives later, at a time not known here.
            self._control.select_on_focus = False
        self._control.focus()
        # With the line below the control, which has the problem.
        after_refresh(self, lambda: self.scroll_visible(animate=False))

    def say(self, text: str, tone: Tone = "quiet", label: str = "") -> None:
        """Set the hint, shown while there is no problem, and perhaps another label."""
        if label:
            self.query_one(".form-field--label", Static).update(Content(label))
        self._hint = (text, tone)
        self._redraw()

    def complain(self, problem: str | None) -> None:
        """Show a problem once the user is no longer typing here; None clears it."""
        self._problem = problem
        self.set_class(problem is not None and not self._is_typing, "-error")
        self._redraw()

    def insist(self) -> None:
        """Show a missing part as a mistake, until the user types in the field again."""
        self.touched, self._is_typing = True, False

    def _redraw(self) -> None:
        line = self._hint
        if self._problem is not None and not (self._is_typing and self._guides):
            line = (self._problem, "quiet" if self._is_typing else "bad")
        if self.is_mounted and self.is_running and line != self._shown:
            self._shown = line
            # The line's height never changes, and a layout would cost more than the rest of a key.
            self.query_one(".form-field--message", Static).update(toned_text(*line), layout=False)

    @on(Input.Changed)
    @on(TextArea.Changed)
    def take_edit(self, event: Input.Changed | TextArea.Changed) -> None:
        event.stop()
        # A control also announces its initial value, which the user did not type.
        if self.value == self._known:
            return
        self._known = self.value
        self.touched = self._is_typing = True
        self.post_message(self.Changed(self.key))

    def on_descendant_blur(self) -> None:
        """Count a field with a value as touched when it is left."""
        self._is_typing = False
        if isinstance(self._control, LineInput):
            self._control.select_on_focus = True
        if self.value:
            self.touched = True
        self.post_message(self.Left())

    @on(CharactersRemoved)
    def report_removed(self, message: CharactersRemoved) -> None:
        message.stop()
        noun = "character" if message.count == 1 else "characters"
        self.say(f"{message.count} {noun} that cannot be shown or did not fit were left out.", "warn")


class LineField(FormField):
    """A one-line field."""

    CONTROL: ClassVar[type[LineInput]] = LineInput

    def __init__(self, key: str, label: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        super().__init__(key, label, hint, self.CONTROL(value, placeholder))


class ChoiceField(LineField):
    """A one-line field with suggestions."""

    CONTROL = ChoiceInput
    _control: ChoiceInput

    _about: Mapping[str, str] = {}

    def offer(self, choices: tuple[str, ...], about: Mapping[str, str] | None = None) -> None:
        """Set the suggestions, best first, and the descriptions shown for a chosen one."""
        self._about = about or {}
        self._control.offer(choices)
        self._show_matches()

    def on_click(self, event: events.Click) -> None:
        line = self.query_one(".form-field--message")
        if not line.region.contains(event.screen_x, event.screen_y) or self._shown != self._hint:
            return
        at = len(_SUGGEST)
        x = event.screen_x - line.content_region.x
        for choice in self._matching[:_SUGGESTIONS_SHOWN]:
            end = at + cell_len(safe_text(choice))
            if at <= x < end:
                self.fill(choice)
                self.take_focus()
            at = end + len(", ")

    @property
    def _matching(self) -> list[str]:
        return [choice for choice in self._control.matches() if choice != self.value]

    @on(Input.Changed)
    def _show_matches(self) -> None:
        matches = self._matching
        self._guides = bool(matches)
        if about := self._about.get(self.value.strip()):
            self.say(about)
            return
        if not matches:
            self.say(self._resting_hint)
            return
        more = ""
        if len(matches) > _SUGGESTIONS_SHOWN:
            more = f" and {len(matches) - _SUGGESTIONS_SHOWN} more"
        match = ""
        if self.value:
            match = " matches" if len(matches) == 1 else " match"
        self.say(f"{_SUGGEST}{', '.join(matches[:_SUGGESTIONS_SHOWN])}{more}{match}")


class InputField(LineField):
    """A one-line field for an agent's input; its hint is the agent's declaration."""

    CONTROL = ChoiceInput
    _control: ChoiceInput

    def __init__(self, key: str, spec: AgentInput, value: str) -> None:
        needs = "" if spec.default is None else f"default {spec.default}"
        if spec.is_required:
            needs = "required"
        choices = spec.choices or (("true", "false") if spec.type == "boolean" else ())
        kind = "" if spec.type in {"text", "any"} else spec.type
        if choices:
            kind = f"↓ {', '.join(choices)}"
        hint = " · ".join(filter(None, (spec.description, kind, needs)))
        super().__init__(
            key, shorten(safe_text(spec.name), LABEL - 2), hint, value=value, placeholder=printable(spec.default or "")
        )
        self._control.offer(choices)


class ParagraphField(FormField):
    """A multi-line field; it takes the remaining height."""

    _control: ParagraphInput

    DEFAULT_CSS = """
    ParagraphField { height: 1fr; min-height: 5; .form-field--body { height: 1fr; } }
    """

    def __init__(self, key: str, label: str, hint: str, *, value: str = "", placeholder: str = "") -> None:
        control = ParagraphInput(printable(value), placeholder=Content(placeholder), highlight_cursor_line=False)
        super().__init__(key, label, hint, control)

    def insert(self, text: str) -> None:
        self._control.insert(text)


class SecretInput(LineInput):
    """A one-line input that shows dots; Textual's own would copy the secret behind them."""

    def __init__(self, value: str, placeholder: str) -> None:
        super().__init__(value, placeholder, password=True)

    def action_copy(self) -> None:
        """Copy nothing: every program can read the clipboard, and some keep it."""

    def action_cut(self) -> None:
        self.delete_selection()


class SecretField(LineField):
    """A field for a secret."""

    CONTROL = SecretInput


class PairsField(ParagraphField):
    """Keys and values, each on a line as `key=value`."""

    DEFAULT_CSS = """
    PairsField { height: 4; min-height: 4; TextArea { min-height: 3; } }
    """
