"""Which kinds, or which outcomes, are wanted."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from widgets.badges import Badge
from widgets.status_list import StatusList


class ActivityPicker(ModalScreen[tuple[str, ...] | None]):
    """Closes with those wanted, none of them for any; None: it was left as it was."""

    CSS = "ActivityPicker { align: center middle; background: $background 60%; }"
    SCOPED_CSS = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "cancel"),
        Binding("backspace,0", "nothing", "any"),
    ]

    def __init__(
        self, title: str, counts: Mapping[str, int], wanted: tuple[str, ...], badge_of: Callable[[str], Badge]
    ) -> None:
        """Prepare.

        Args:
            title: What is chosen.
            counts: How many there are of each.
            wanted: Those chosen before.
            badge_of: How one is drawn.
        """
        super().__init__()
        self._title = title
        self._counts = {name: counts.get(name, 0) for name in (*counts, *wanted)}
        self._wanted = wanted
        self._badge_of = badge_of

    def compose(self) -> ComposeResult:
        """The list in a box."""
        with Vertical(id="picker") as box:
            box.border_title = self._title
            box.border_subtitle = "esc leaves"
            yield StatusList(self._counts, self._wanted, self._badge_of)
            yield Static("space marks · enter applies · 0 any", markup=False)

    @on(StatusList.Chosen)
    def _on_chosen(self, message: StatusList.Chosen) -> None:
        self.dismiss(message.statuses)

    def action_nothing(self) -> None:
        """Closes with all of them."""
        self.dismiss(())

    def action_leave(self) -> None:
        """Closes and changes nothing."""
        self.dismiss(None)
