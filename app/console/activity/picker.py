"""Which kinds, or which outcomes, are wanted."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from app.console.sheet import PickerScreen
from widgets.badges import Badge
from widgets.choice_lists import StatusList


class ActivityPicker(PickerScreen[tuple[str, ...]]):
    """Closes with those wanted, none of them for any; None: it was left as it was."""

    HINT = "space marks · enter applies · 0 any"
    CLICKABLE: ClassVar[Mapping[str, str]] = {"enter applies": "apply", "0 any": "nothing"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "cancel", show=False),
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

    @property
    def title_text(self) -> str:
        """What is chosen."""
        return self._title

    def compose_choice(self) -> ComposeResult:
        """The list."""
        yield StatusList(self._counts, self._wanted, self._badge_of)

    @on(StatusList.Chosen)
    def _on_chosen(self, message: StatusList.Chosen) -> None:
        self.dismiss(message.statuses)

    def action_apply(self) -> None:
        """Makes the choice."""
        self.query_one(StatusList).action_choose()

    def action_nothing(self) -> None:
        """Closes with all of them."""
        self.dismiss(())
