"""Inputs that hold only printable text: nothing pasted into them reaches the terminal as a command."""

from dataclasses import dataclass
from typing import ClassVar, Final

from rich.cells import split_graphemes
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, TextArea
from textual.widgets.text_area import Edit, EditResult, Location

from app.engine.text import safe_text
from widgets.kit import hidden

MAX_LINE: Final = 4_000
"""The most characters of a one-line input; longer pastes are cut."""
_MAX_CLUSTER: Final = 64
"""Characters next to the cursor that are searched for the end of a visible character."""


def printable(text: str) -> str:
    """The text without characters that a terminal would act on, or show as others; line breaks and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for at, line in enumerate(lines):
        if safe_text(line, limit=len(line) + 1) != line:
            parts = line.split("\t")
            for number, part in enumerate(parts):
                # Together with the neighbours, since a joiner stays only between letters or emoji.
                kept = "".join(char for n, char in enumerate(part) if char in safe_text(part[max(0, n - 1) : n + 2]))
                parts[number] = safe_text(kept, limit=len(part) + 1)
            lines[at] = "\t".join(parts)
    return "\n".join(lines)


@dataclass
class CharactersRemoved(Message):
    """Unprintable characters were removed from a paste."""

    count: int


class LineInput(Input):
    """A one-line input."""

    def on_paste(self, event: events.Paste) -> None:
        # Otherwise Textual also calls the base class's handler.
        event.prevent_default()
        event.stop()
        lines = event.text.strip().splitlines()
        if lines:
            start, end = sorted(self.selection)
            self.replace(lines[0], start, end)

    def replace(self, text: str, start: int, end: int) -> None:
        line = self.validate_value(text)[:MAX_LINE]
        super().replace(line, start, end)
        if len(line) < len(text):
            self.post_message(CharactersRemoved(len(text) - len(line)))

    def validate_value(self, value: str) -> str:
        return printable(value).replace("\n", " ").replace("\t", " ")


class ListSearch(LineInput):
    """The search above a list; escape clears it, enter and down go to the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,down,tab", "leave(False)", "to the list", key_display="enter", id="search.leave"),
        Binding("escape", "leave(True)", "clear", id="search.clear"),
    ]

    class Left(Message):
        """The focus goes back to the rows."""

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, compact=True, select_on_focus=False)

    def action_leave(self, clear: bool) -> None:
        if clear:
            self.value = ""
        self.post_message(self.Left())


class ChoiceInput(LineInput):
    """A one-line input with suggestions: one is completed in place, up and down walk through the matches."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("down", "choose(1)", "Next suggestion"),
        hidden("up", "choose(-1)", "Previous suggestion"),
    ]

    def __init__(self, value: str, placeholder: str) -> None:
        super().__init__(value, placeholder)
        self._choices: tuple[str, ...] = ()
        self._stem: str = value
        """The typed text, while a suggestion is shown instead."""
        self._chosen: str | None = None

    def offer(self, choices: tuple[str, ...]) -> None:
        """Set the suggestions, best first, without those that cannot be shown faithfully."""
        self._choices = tuple(choice for choice in choices if printable(choice) == choice)
        self.suggester = SuggestFromList(self._choices, case_sensitive=False)

    def matches(self) -> tuple[str, ...]:
        """Return the suggestions that contain the typed text, those beginning with it first."""
        stem = self._typed_text().strip().casefold()
        matches = [choice for choice in self._choices if stem in choice.casefold()]
        return tuple(sorted(matches, key=lambda choice: not choice.casefold().startswith(stem)))

    def action_choose(self, step: int) -> None:
        """Show the next match; past the ends it restores the typed text."""
        stem = self._typed_text()
        matches = self.matches()
        ring = (stem, *(choice for choice in matches if choice != stem))
        index = ring.index(self.value) if self.value in ring else 0
        self._stem = stem
        self._chosen = ring[(index + step) % len(ring)]
        self.value = self._chosen
        self.cursor_position = len(self.value)

    def _typed_text(self) -> str:
        return self._stem if self.value == self._chosen else self.value


class ParagraphInput(TextArea):
    """A multi-line input."""

    def edit(self, edit: Edit) -> EditResult:
        text = edit.text.replace("\r\n", "\n")
        edit.text = printable(text)
        result = super().edit(edit)
        if len(edit.text) < len(text):
            self.post_message(CharactersRemoved(len(text) - len(edit.text)))
        return result

    def get_cursor_left_location(self) -> Location:
        """Return the place before the flag, emoji or accented letter that ends at the cursor."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[max(0, column - _MAX_CLUSTER) : column]
        if before:
            return (row, column - len(_clusters(before)[-1]))
        return super().get_cursor_left_location()

    def get_cursor_right_location(self) -> Location:
        """Return the place after the flag, emoji or accented letter that begins at the cursor."""
        row, column = self.cursor_location
        after = self.document.get_line(row)[column : column + _MAX_CLUSTER]
        if after:
            return (row, column + len(_clusters(after)[0]))
        return super().get_cursor_right_location()


def _clusters(text: str) -> list[str]:
    """Split a text into visible characters; a flag is a pair of letters, which Rich would separate."""
    clusters: list[str] = []
    begins_flag = False
    for start, end, _width in split_graphemes(text)[0]:
        cluster = text[start:end]
        is_letter = len(cluster) == 1 and "\U0001f1e6" <= cluster <= "\U0001f1ff"
        if is_letter and begins_flag:
            clusters[-1] += cluster
        else:
            clusters.append(cluster)
        begins_flag = is_letter and not begins_flag
    return clusters
