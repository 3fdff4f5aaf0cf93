"""Which statuses are wanted: a short list with how many runs each has."""

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import SelectionList, Static
from textual.widgets.selection_list import Selection

from widgets.badges import STYLES, run_badge

KNOWN = ("queued", "working", "completed", "failed")
WORD_CELLS = 18


class StatusPicker(ModalScreen[tuple[str, ...] | None]):
    """Closes with the statuses wanted, none of them for any; None: it was left as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "apply", priority=True),
        Binding("escape", "leave", "cancel"),
        Binding("backspace,0", "nothing", "any status"),
    ]

    def __init__(self, counts: Mapping[str, int], wanted: tuple[str, ...]) -> None:
        super().__init__()
        self._counts = counts
        self._wanted = wanted
        others = sorted(set(counts) - set(KNOWN))
        self._statuses = (*KNOWN, *others)

    def compose(self) -> ComposeResult:
        """The list in a box."""
        choices = [Selection(self._line(s), i, s in self._wanted) for i, s in enumerate(self._statuses)]
        box = SelectionList[int](*choices, compact=True)
        box.border_title = "Show status"
        yield box
        yield Static("space marks · enter applies · 0 any · esc leaves", markup=False, id="picker-keys")

    def action_apply(self) -> None:
        """Closes with what is marked."""
        marked = self.query_one(SelectionList).selected
        self.dismiss(tuple(self._statuses[i] for i in sorted(marked)))

    def action_nothing(self) -> None:
        """Closes with every status."""
        self.dismiss(())

    def action_leave(self) -> None:
        """Closes and changes nothing."""
        self.dismiss(None)

    def _line(self, status: str) -> Content:
        badge = run_badge(status)
        count = self._counts.get(status, 0)
        return Content.assemble(
            (f"{badge.glyph} {badge.word:<{WORD_CELLS}}", badge.style), (f"{count:>9,}", STYLES["quiet"])
        )
