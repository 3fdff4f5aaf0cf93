"""Lists to choose from: values that are included or excluded, and statuses with their counts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import safe_text
from widgets.badges import STYLES, Badge, run_badge
from widgets.cells import fit, shorten

ChoiceMark = Literal["only", "not"]
_BOXES: Final[dict[ChoiceMark | None, tuple[str, str]]] = {
    None: ("□", "$foreground 70%"),
    "only": ("■", "$accent"),
    "not": ("⊘", STYLES["bad"]),
}
NEXT_MARK: Final[dict[ChoiceMark | None, ChoiceMark | None]] = {None: "only", "only": "not", "not": None}
WORD: Final = 20
COUNT: Final = 12
"""Cells of a status and of its count."""


@dataclass(frozen=True, slots=True)
class PickItem:
    """One value of the list."""

    value: str
    """The value itself; foreign text."""
    note: str = ""
    found: tuple[int, ...] = ()
    """Positions of the characters that the search matched."""


class PickList(Widget):
    """Draws the values and a cursor; its screen handles the keys."""

    @dataclass
    class Clicked(Message):
        """A value was clicked."""

        value: str
        is_final: bool
        """Whether it was a double click, which makes the choice."""

    def __init__(self) -> None:
        super().__init__()
        self._picks: tuple[PickItem, ...] = ()
        self._marks: Mapping[str, ChoiceMark] = {}
        self._cursor = 0
        self._top = 0

    @property
    def value(self) -> str | None:
        """The value under the cursor; None: the list is empty."""
        return self._picks[self._cursor].value if self._picks else None

    def show(self, picks: tuple[PickItem, ...], marks: Mapping[str, ChoiceMark]) -> None:
        """Show the values and their marks; the cursor stays where it is if the values are the same."""
        if picks != self._picks:
            self._cursor = 0 if [p.value for p in picks] != [p.value for p in self._picks] else self._cursor
        self._picks, self._marks = picks, dict(marks)
        self.refresh()

    def move(self, step: int) -> None:
        """Move the cursor; a single step wraps around the ends."""
        if not self._picks:
            return
        last = len(self._picks) - 1
        there = self._cursor + step
        around = abs(step) == 1 and not 0 <= there <= last
        self._cursor = (last if step < 0 else 0) if around else min(max(0, there), last)
        self.refresh()

    def render(self) -> Content:
        """The values around the cursor."""
        height = max(1, self.size.height)
        self._top = min(max(self._top, self._cursor - height + 1), self._cursor)
        self._top = max(0, min(self._top, len(self._picks) - height))
        if not self._picks:
            return Content.styled("  nothing matches; enter takes what is typed", STYLES["quiet"])
        shown = range(self._top, min(len(self._picks), self._top + height))
        return Content("\n").join(self._line(index) for index in shown)

    def on_click(self, event: events.Click) -> None:
        """Post the clicked value."""
        index = self._top + event.y
        if index < len(self._picks):
            self._cursor = index
            self.post_message(self.Clicked(self._picks[index].value, event.chain > 1))
            self.refresh()

    def on_mouse_scroll_down(self) -> None:
        """Move down."""
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        """Move up."""
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


class StatusList(Widget, can_focus=True):
    """Statuses with a cursor and marks; enter without a mark chooses the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="statuses.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="statuses.up"),
        Binding("space", "mark", "mark", show=False, id="statuses.mark"),
        Binding("minus", "exclude", "exclude", show=False, key_display="-", id="statuses.exclude"),
        Binding("enter", "choose", "apply", show=False, id="statuses.apply"),
    ]

    @dataclass
    class Chosen(Message):
        """Statuses were chosen."""

        statuses: tuple[str, ...]
        excluded: tuple[str, ...] = ()

    def __init__(
        self,
        counts: Mapping[str, int],
        marked: tuple[str, ...],
        badge_of: Callable[[str], Badge] = run_badge,
        *,
        excluded: tuple[str, ...] | None = None,
    ) -> None:
        """Show the statuses; without `excluded`, statuses cannot be excluded."""
        super().__init__()
        self._can_exclude = excluded is not None
        self._excluded = set(excluded or ())
        self._badge_of = badge_of
        self._counts = counts
        self._statuses = tuple(counts)
        self._word_cells = max([WORD, *(cell_len(badge_of(status).text) + 1 for status in counts)])
        self._marked = set(marked)
        self._cursor = next((i for i, status in enumerate(self._statuses) if status in self._marked), 0)

    def render(self) -> Content:
        """A line for each status."""
        return Content("\n").join(self._line(index) for index in range(len(self._statuses)))

    def action_move(self, step: int) -> None:
        """Move the cursor, wrapping around the ends."""
        self._cursor = (self._cursor + step) % len(self._statuses)
        self.refresh()

    def action_mark(self) -> None:
        """Mark or unmark the status."""
        here = {self._statuses[self._cursor]}
        self._marked ^= here
        self._excluded -= here
        self.refresh()

    def action_exclude(self) -> None:
        """Exclude the status, or include it again."""
        if self._can_exclude:
            here = {self._statuses[self._cursor]}
            self._excluded ^= here
            self._marked -= here
            self.refresh()

    def action_choose(self) -> None:
        """Post the choice."""
        chosen = self._marked if self._marked or self._excluded else {self._statuses[self._cursor]}
        self.post_message(
            self.Chosen(
                tuple(status for status in self._statuses if status in chosen),
                tuple(status for status in self._statuses if status in self._excluded),
            )
        )

    def on_click(self, event: events.Click) -> None:
        """Mark the clicked status; a double click chooses it."""
        if event.y < len(self._statuses):
            self._cursor = event.y
            if event.chain > 1:
                self._marked.add(self._statuses[self._cursor])
                self.action_choose()
            else:
                self.action_mark()

    def _line(self, index: int) -> Content:
        status = self._statuses[index]
        badge = self._badge_of(status)
        here = " on $block-cursor-blurred-background" if index == self._cursor else ""
        word = badge.text + " " * (self._word_cells - cell_len(badge.text))
        return Content.assemble(
            ("▌ " if here else "  ", f"$accent{here}"),
            (f"{self._box(status)} ", f"$foreground{here}"),
            (word, f"{badge.style}{here}"),
            (f"{self._counts[status]:>{COUNT},} ", f"{STYLES['quiet']}{here}"),
            (" " * max(0, self.size.width - 4 - cell_len(word) - COUNT - 1), here),
        )

    def _box(self, status: str) -> str:
        if status in self._excluded:
            return "⊘"
        return "■" if status in self._marked else "□"
