"""Which statuses are wanted, and which are not."""

from collections.abc import Mapping
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from app.console.picker import PickerScreen
from widgets.choice_lists import StatusList

KNOWN: Final = ("queued", "working", "completed", "failed")
"""Offered even while no run has them."""

Picked = tuple[tuple[str, ...], tuple[str, ...]]
"""Those that are asked for, and those that are excluded."""


class StatusPicker(PickerScreen[Picked]):
    """Closes with the statuses wanted and those not wanted, none of either for any."""

    TITLE_TEXT = "Show status"
    HINT = "space marks · - excludes · enter applies · 0 any"
    DEEDS: ClassVar[Mapping[str, str]] = {"enter applies": "apply", "0 any": "nothing"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "cancel", show=False),
        Binding("backspace,0", "nothing", "any status", id="picker.any"),
    ]

    def __init__(self, counts: Mapping[str, int], wanted: tuple[str, ...], excluded: tuple[str, ...]) -> None:
        super().__init__()
        others = sorted((set(counts) | set(wanted) | set(excluded)) - set(KNOWN))
        self._counts = {status: counts.get(status, 0) for status in (*KNOWN, *others)}
        self._wanted = wanted
        self._excluded = excluded

    def compose_choice(self) -> ComposeResult:
        """The list."""
        yield StatusList(self._counts, self._wanted, excluded=self._excluded)

    @on(StatusList.Chosen)
    def _on_chosen(self, message: StatusList.Chosen) -> None:
        self.dismiss((message.statuses, message.excluded))

    def action_apply(self) -> None:
        """Makes the choice."""
        self.query_one(StatusList).action_choose()

    def action_nothing(self) -> None:
        """Closes with every status."""
        self.dismiss(((), ()))
