"""A short list of statuses to mark, each with how many runs have it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from widgets.badges import STYLES, Badge, run_badge

WORD = 20
COUNT = 12


class StatusList(Widget, can_focus=True):
    """Statuses with a cursor and marks; enter without a mark means the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="statuses.down"),
        Binding("up,k", "move(-1)", "up", show=False, id="statuses.up"),
        Binding("space", "mark", "mark", show=False, id="statuses.mark"),
        Binding("minus", "exclude", "exclude", show=False, key_display="-", id="statuses.exclude"),
        Binding("enter", "choose", "apply", show=False, id="statuses.apply"),
    ]

    @dataclass
    class Chosen(Message):
        """The choice is made."""

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
        """Prepare.

        Args:
            counts: The statuses, and how many have each.
            marked: Those that are wanted.
            badge_of: How one is drawn.
            excluded: Those that are not wanted. None: none can be excluded.
        """
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
        """Moves the cursor, around the ends."""
        self._cursor = (self._cursor + step) % len(self._statuses)
        self.refresh()

    def action_mark(self) -> None:
        """Marks the status, or takes the mark away."""
        here = {self._statuses[self._cursor]}
        self._marked ^= here
        self._excluded -= here
        self.refresh()

    def action_exclude(self) -> None:
        """Excludes the status, or no longer."""
        if self._can_exclude:
            here = {self._statuses[self._cursor]}
            self._excluded ^= here
            self._marked -= here
            self.refresh()

    def action_choose(self) -> None:
        """Makes the choice."""
        chosen = self._marked if self._marked or self._excluded else {self._statuses[self._cursor]}
        self.post_message(
            self.Chosen(
                tuple(status for status in self._statuses if status in chosen),
                tuple(status for status in self._statuses if status in self._excluded),
            )
        )

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
