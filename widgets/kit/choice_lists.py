"""Lists to choose from: options with the console's keys, values to include or exclude, and finding names by letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Final, Literal

from msgspec import Struct
from rich.cells import cell_len
from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.fuzzy import FuzzySearch
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.engine.text import safe_text
from widgets.kit import hidden
from widgets.kit.badges import STYLES
from widgets.kit.cells import fit, shorten

ChoiceMark = Literal["only", "not"]
_BOXES: Final[dict[ChoiceMark | None, tuple[str, str]]] = {
    None: ("□", "$foreground 70%"),
    "only": ("■", "$accent"),
    "not": ("⊘", STYLES["bad"]),
}
NEXT_MARK: Final[dict[ChoiceMark | None, ChoiceMark | None]] = {None: "only", "only": "not", "not": None}


class Options(OptionList):
    """A list of options with the console's keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("j", "cursor_down", "down", id="list.down"),
        hidden("k", "cursor_up", "up", id="list.up"),
        hidden("g", "first", "to the first one", id="list.first"),
        hidden("G", "last", "to the last one", id="list.last"),
    ]


class PickItem(Struct, frozen=True):
    """One value of the list."""

    value: str
    """The value itself; foreign text."""
    note: str = ""
    found: tuple[int, ...] = ()
    """Positions of the characters that the search matched."""


class PickList(OptionList, can_focus=False):
    """Draws the values and a cursor; its screen handles the keys."""

    @dataclass
    class Clicked(Message):
        """A value was clicked."""

        value: str
        is_final: bool
        """Whether it was a double click, which makes the choice."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._picks: tuple[PickItem, ...] = ()
        self._marks: Mapping[str, ChoiceMark] = {}

    @property
    def value(self) -> str | None:
        """The value under the cursor; None: the list is empty."""
        return self._picks[self.highlighted].value if self._picks and self.highlighted is not None else None

    def show(self, picks: tuple[PickItem, ...], marks: Mapping[str, ChoiceMark]) -> None:
        """Show the values and their marks; the cursor stays where it is if the values are the same."""
        is_same = [pick.value for pick in picks] == [pick.value for pick in self._picks]
        at = (self.highlighted or 0) if is_same else 0
        self._picks = picks
        self._marks = marks
        nothing = Content.styled("  nothing matches; enter use the text as typed", STYLES["quiet"])
        self.set_options(
            [self._prompt(pick, marks.get(pick.value)) for pick in picks] or [Option(nothing, disabled=True)]
        )
        self.highlighted = at if picks else None

    def on_resize(self) -> None:
        """Draw for the new width."""
        self.show(self._picks, self._marks)

    def move(self, step: int) -> None:
        """Move the cursor; a single step wraps around the ends."""
        if self._picks and self.highlighted is not None:
            last = len(self._picks) - 1
            there = self.highlighted + step
            self.highlighted = there % (last + 1) if abs(step) == 1 else min(max(0, there), last)

    def on_click(self, event: events.Click) -> None:
        """Post the clicked value."""
        index = event.style.meta.get("option")
        if index is not None and index < len(self._picks):
            event.prevent_default()
            self.highlighted = index
            self.post_message(self.Clicked(self._picks[index].value, event.chain > 1))

    def _prompt(self, pick: PickItem, mark: ChoiceMark | None) -> Content:
        glyph, style = _BOXES[mark]
        width = max(1, self.scrollable_content_region.width - 6 - (cell_len(pick.note) + 1 if pick.note else 0))
        text = safe_text(pick.value, limit=300)
        name = fit(shorten(text, width), width)
        note = (f" {pick.note} " if pick.note else " ", STYLES["quiet"])
        content = Content.assemble("  ", (f"{glyph} ", style), (name, "$foreground"), note)
        if text == pick.value:
            for position in pick.found:
                if position < len(name):
                    content = content.stylize(f"{STYLES['warn']} bold underline", position + 4, position + 5)
        return content


_MOST_WAYS: Final = 500
"""Textual tries every way to place the letters: 500 take 10 ms, those of six among a hundred equal ones minutes."""


def fuzzy(query: str, name: str) -> tuple[float, Sequence[int]] | None:
    """Return a name's score (higher is better) and the places of the letters in it; None: no match."""
    if not query:
        return 0.0, ()
    letters, text = query.lower(), name.lower()
    may_be_many = letters not in text and prod(map(text.count, letters)) > _MOST_WAYS
    if may_be_many and _ways(letters, text) > _MOST_WAYS:
        return None
    # Where lower case changes the length, the places would be wrong: the case is compared as it is.
    score, positions = FuzzySearch(case_sensitive=len(text) != len(name), cache_size=1).match(query, name)
    # Of two names with equal scores the shorter one is better.
    return (score - len(name) / 1_000, positions) if score else None


def _ways(letters: str, text: str) -> int:
    """Count the ways to place the letters, or the first few of them, in the text in order."""
    ways = [1, *(0 for _ in letters)]
    for letter in text:
        for at in range(len(letters), 0, -1):
            if letters[at - 1] == letter:
                ways[at] += ways[at - 1]
    return sum(ways) - 1
