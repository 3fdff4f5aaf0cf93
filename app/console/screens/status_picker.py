"""Which statuses are wanted."""

from collections.abc import Mapping
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from widgets.status_list import StatusList

KNOWN: Final = ("queued", "working", "completed", "failed")
"""Offered even while no run has them."""


class StatusPicker(ModalScreen[tuple[str, ...] | None]):
    """Closes with the statuses wanted, none of them for any; None: it was left as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "cancel"),
        Binding("backspace,0", "nothing", "any status"),
    ]

    def __init__(self, counts: Mapping[str, int], wanted: tuple[str, ...]) -> None:
        super().__init__()
        others = sorted((set(counts) | set(wanted)) - set(KNOWN))
        self._counts = {status: counts.get(status, 0) for status in (*KNOWN, *others)}
        self._wanted = wanted

    def compose(self) -> ComposeResult:
        """The list in a box."""
        with Vertical(id="picker") as box:
            box.border_title = "Show status"
            box.border_subtitle = "esc leaves"
            yield StatusList(self._counts, self._wanted)
            yield Static("space marks · enter applies · 0 any", markup=False)

    @on(StatusList.Chosen)
    def _on_chosen(self, message: StatusList.Chosen) -> None:
        self.dismiss(message.statuses)

    def action_nothing(self) -> None:
        """Closes with every status."""
        self.dismiss(())

    def action_leave(self) -> None:
        """Closes and changes nothing."""
        self.dismiss(None)
