"""Lists to choose from: options, values to include or exclude, rows of any height; and finding names by letters."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import ClassVar, Final, Literal

from msgspec import Struct
from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.fuzzy import FuzzySearch
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.engine.text import safe_text
from widgets.kit import hidden
from widgets.kit.badges import STYLES, Badge
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
    badge: Badge | None = None
    """Drawn in place of the value."""
    note: str = ""
    found: tuple[int, ...] = ()
    """Positions of the characters that the search matched."""

    @property
    def text(self) -> str:
        return self.badge.text if self.badge else self.value


class PickList(OptionList, can_focus=False):
    """Draws the values and a cursor; its screen handles the keys."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._picks: tuple[PickItem, ...] = ()
        self._marks: Mapping[str, ChoiceMark] = {}

    @property
    def value(self) -> str | None:
        """The value under the cursor; None: the list is empty."""
        if self._picks and self.highlighted is not None:
            return self._picks[self.highlighted].value
        return None

    def show(self, picks: tuple[PickItem, ...], marks: Mapping[str, ChoiceMark]) -> None:
        """Show the values and their marks; the cursor stays where it is if the values are the same."""
        is_same = [pick.value for pick in picks] == [pick.value for pick in self._picks]
        at = (self.highlighted or 0) if is_same else 0
        self._picks = picks
        self._marks = marks
        options = list[Content | Option]()
        for pick in picks:
            glyph, style = _BOXES[marks.get(pick.value)]
            width = max(1, self.scrollable_content_region.width - 6 - (cell_len(pick.note) + 1 if pick.note else 0))
            text = safe_text(pick.text, limit=300)
            name = fit(shorten(text, width), width)
            note = (f" {pick.note} " if pick.note else " ", STYLES["quiet"])
            tone = pick.badge.style if pick.badge else "$foreground"
            content = Content.assemble("  ", (f"{glyph} ", style), (name, tone), note)
            for position in pick.found if text == pick.text else ():
                if position < len(name):
                    content = content.stylize(f"{STYLES['warn']} bold underline", position + 4, position + 5)
            options.append(content)
        nothing = Content.styled("  nothing matches", STYLES["quiet"])
        self.set_options(options or [Option(nothing, disabled=True)])
        self.highlighted = at if picks else None

    def on_resize(self) -> None:
        self.show(self._picks, self._marks)


_MAX_WAYS: Final = 500
"""Textual tries every way to place the letters: 500 take 10 ms, those of six among a hundred equal ones minutes."""


def fuzzy(query: str, name: str) -> tuple[float, Sequence[int]] | None:
    """Return a name's score (higher is better) and the places of the letters in it; None: no match."""
    if not query:
        return 0.0, ()
    letters = query.lower()
    text = name.lower()
    if letters not in text and prod(map(text.count, letters)) > _MAX_WAYS < _ways(letters, text):
        return None
    # If lower case would change the length and so the positions, compare the text unchanged.
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


class LeadRow(Struct, frozen=True):
    """A row, or a title."""

    content: Content
    key: str = ""
    """Identifies the row across updates; empty: the cursor skips it."""
    leads: bool = False
    """Whether enter opens something."""


Draw = Callable[[int], Sequence[LeadRow]]


class LeadList(Options):
    """Titles and rows; the cursor stays on its row, or on the first one."""

    DEFAULT_CSS = Path(__file__).with_name("choice_lists.tcss").read_text("utf-8")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select", "its runs", tooltip="Show the runs of this row", id="leads.open")
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._draw: Draw = lambda _: ()
        self._rows: Sequence[LeadRow] = ()
        self._sought = ""

    @property
    def row(self) -> LeadRow | None:
        if self.highlighted is None:
            return None
        return self._rows[self.highlighted]

    def show(self, draw: Draw) -> None:
        self._draw = draw
        self.on_resize()

    def seek(self, key: str) -> None:
        """Put the cursor on the row with this key, now or once it appears."""
        self._sought = key
        self._find(key)

    def on_resize(self) -> None:
        """Draw for the new width; unchanged lines are not painted again."""
        before = self._rows
        here = self.row
        top = self.scroll_offset.y
        rows = self._rows = self._draw(max(1, self.scrollable_content_region.width))
        if [row.key for row in before] == [row.key for row in rows]:
            for index, (old, new) in enumerate(zip(before, rows, strict=True)):
                if not old.content.is_same(new.content):
                    self.replace_option_prompt_at_index(index, new.content)
            return
        is_first = here is None or here.key == next(row.key for row in before if row.key)
        near = self.highlighted or 0
        self.set_options(Option(row.content, row.key or None, disabled=not row.key) for row in rows)
        self.scroll_to(y=top, animate=False, force=True)
        indexes = [index for index, row in enumerate(rows) if row.key]
        if here is None or is_first:
            self.highlighted = indexes[0] if indexes else None
        elif not self._find(here.key) and indexes:
            self.highlighted = min(indexes, key=lambda index: abs(index - near))
        self._find(self._sought)

    def _find(self, key: str) -> bool:
        index = next((index for index, row in enumerate(self._rows) if key and row.key == key), None)
        if index is not None:
            self._sought = "" if key == self._sought else self._sought
            self.highlighted = index
        return index is not None

    def on_click(self, event: events.Click) -> None:
        event.prevent_default()
        index = event.style.meta.get("option")
        if index is not None and self._rows[index].key:
            self.highlighted = index
            if event.chain > 1:
                self.action_select()

    def action_first(self) -> None:
        """Move the cursor to the first row, and show the titles above it."""
        super().action_first()
        self.scroll_home(animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable enter on rows that open nothing; if none does, offer no key."""
        if action == "select":
            is_possible = self.row is not None and self.row.leads
            return is_possible or (None if any(row.leads for row in self._rows) else False)
        return super().check_action(action, parameters)
