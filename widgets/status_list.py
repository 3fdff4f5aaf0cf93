"""A short list of statuses to mark, each with how many runs have it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from widgets.badges import STYLES, run_badge

WORD = 20
COUNT = 12


class StatusList(Widget, can_focus=True):
    """Statuses with a cursor and marks; enter without a mark means the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="statuses.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="statuses.up"),
        Binding("space", "mark", "mark", show=False, id="statuses.mark"),
        Binding("enter", "choose", "apply", show=False, id="statuses.apply"),
    ]

    @dataclass
    class Chosen(Message):
        """The choice is made."""

        statuses: tuple[str, ...]

    def __init__(self, counts: Mapping[str, int], marked: tuple[str, ...]) -> None:
        super().__init__()
        self._counts = counts
        self._statuses = tuple(counts)
        self._marked = set(marked)
        self._cursor = next((i for i, status in enumerate(self._statuses) if status in self._marked), 0)

    def render(self) -> Content:
        """A line for each status."""
        return Content("\n").join(self._line(index) for index in range(len(self._statuses)))

    def action_move(self, step: int) -> None:
        """Moves the cursor, around the ends."""
        self._cursor = (self._cursor + step) % len(self._statuses)
        self.refresh()

    def action_mark(self) -> None:
        """Marks the status, or takes the mark away."""
        self._marked ^= {self._statuses[self._cursor]}
        self.refresh()

    def action_choose(self) -> None:
        """Makes the choice."""
        chosen = self._marked or {self._statuses[self._cursor]}
        self.post_message(self.Chosen(tuple(status for status in self._statuses if status in chosen)))

    def on_click(self, event: events.Click) -> None:
        """Marks the status under the pointer; a second click makes the choice."""
        if event.y < len(self._statuses):
            self._cursor = event.y
            if event.chain > 1:
                self._marked.add(self._statuses[self._cursor])
                self.action_choose()
            else:
                self.action_mark()

    def _line(self, index: int) -> Content:
        status = self._statuses[index]
        badge = run_badge(status)
        here = " on $block-cursor-blurred-background" if index == self._cursor else ""
        word = badge.text + " " * max(1, WORD - cell_len(badge.text))
        return Content.assemble(
            ("▌ " if here else "  ", f"$accent{here}"),
            ("■ " if status in self._marked else "□ ", f"$foreground{here}"),
            (word, f"{badge.style}{here}"),
            (f"{self._counts[status]:>{COUNT},} ", f"{STYLES['quiet']}{here}"),
        )
