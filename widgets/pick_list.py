"""A list of names to choose among, of any length: each may be asked for, excluded, or neither."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import safe_text
from widgets.badges import STYLES
from widgets.cells import fit, shorten

Mark = Literal["only", "not"]
_BOXES: Final[dict[Mark | None, tuple[str, str]]] = {
    None: ("□", "$foreground 70%"),
    "only": ("■", "$accent"),
    "not": ("⊘", STYLES["bad"]),
}
NEXT: Final[dict[Mark | None, Mark | None]] = {None: "only", "only": "not", "not": None}


@dataclass(frozen=True, slots=True)
class Pick:
    """One line of the list."""

    value: str
    """As it is meant; foreign text."""
    note: str = ""
    found: tuple[int, ...] = ()
    """Characters that the search found."""


class PickList(Widget):
    """Draws the list and holds its cursor; whoever has the keys moves it."""

    @dataclass
    class Clicked(Message):
        """A line was clicked."""

        value: str
        is_final: bool
        """Twice: that is the choice."""

    def __init__(self) -> None:
        super().__init__()
        self._picks: tuple[Pick, ...] = ()
        self._marks: Mapping[str, Mark] = {}
        self._cursor = 0
        self._top = 0

    @property
    def value(self) -> str | None:
        """The value under the cursor; None: the list is empty."""
        return self._picks[self._cursor].value if self._picks else None

    def show(self, picks: tuple[Pick, ...], marks: Mapping[str, Mark]) -> None:
        """Takes the lines and what is marked; the cursor stays where it is if there still is such a line."""
        if picks != self._picks:
            self._cursor = 0 if [p.value for p in picks] != [p.value for p in self._picks] else self._cursor
        self._picks, self._marks = picks, dict(marks)
        self.refresh()

    def move(self, step: int) -> None:
        """Moves the cursor, around the ends by one step."""
        if not self._picks:
            return
        last = len(self._picks) - 1
        there = self._cursor + step
        around = abs(step) == 1 and not 0 <= there <= last
        self._cursor = (last if step < 0 else 0) if around else min(max(0, there), last)
        self.refresh()

    def render(self) -> Content:
        """The lines around the cursor."""
        height = max(1, self.size.height)
        self._top = min(max(self._top, self._cursor - height + 1), self._cursor)
        self._top = max(0, min(self._top, len(self._picks) - height))
        if not self._picks:
            return Content.styled("  nothing matches; enter takes what is typed", STYLES["quiet"])
        shown = range(self._top, min(len(self._picks), self._top + height))
        return Content("\n").join(self._line(index) for index in shown)

    def on_click(self, event: events.Click) -> None:
        """Names the line under the pointer."""
        index = self._top + event.y
        if index < len(self._picks):
            self._cursor = index
            self.post_message(self.Clicked(self._picks[index].value, event.chain > 1))
            self.refresh()

    def on_mouse_scroll_down(self) -> None:
        """Goes down."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Goes up."""
        self.move(-3)

    def _line(self, index: int) -> Content:
        pick = self._picks[index]
        mark = self._marks.get(pick.value)
        here = " on $block-cursor-blurred-background" if index == self._cursor else ""
        glyph, style = _BOXES[mark]
        width = self.size.width - 6 - (cell_len(pick.note) + 1 if pick.note else 0)
        text = safe_text(pick.value, limit=300)
        name = fit(shorten(text, width), width)
        content = Content.assemble(
            ("▌ " if here else "  ", f"$accent{here}"),
            (f"{glyph} ", f"{style}{here}"),
            (name, f"$foreground{here}"),
            (f" {pick.note} " if pick.note else " ", f"{STYLES['quiet']}{here}"),
        )
        if text == pick.value:
            for position in pick.found:
                if position < len(name):
                    content = content.stylize(f"{STYLES['warn']} bold underline", position + 4, position + 5)
        return content
