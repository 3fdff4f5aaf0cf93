"""The sheet that picks values to show and to exclude: statuses of runs, kinds and outcomes of activity."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from app.console.sheets import PickerScreen
from widgets.badges import Badge, run_badge
from widgets.choice_lists import StatusList

Picked = tuple[tuple[str, ...], tuple[str, ...]]
"""The values to show and the values to exclude."""


class MarkPicker(PickerScreen[Picked]):
    """Closes with the values to show and to exclude; both empty: all values."""

    CLICKABLE: ClassVar[Mapping[str, str]] = {"enter applies": "apply", "0 any": "nothing"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", "cancel", show=False),
        Binding("backspace,0", "nothing", "any status", id="picker.any"),
    ]

    def __init__(
        self,
        title: str,
        counts: Mapping[str, int],
        wanted: tuple[str, ...],
        excluded: tuple[str, ...] | None = None,
        *,
        badge_of: Callable[[str], Badge] = run_badge,
    ) -> None:
        """Prepare; without `excluded` values cannot be excluded."""
        super().__init__()
        self.TITLE_TEXT = title
        self.HINT = f"space marks{'' if excluded is None else ' · - excludes'} · enter applies · 0 any"
        names = (*counts, *wanted, *(excluded or ()))
        self._list = StatusList({name: counts.get(name, 0) for name in names}, wanted, badge_of, excluded=excluded)

    def compose_choice(self) -> ComposeResult:
        """Compose the values with their counts."""
        yield self._list

    @on(StatusList.Chosen)
    def _on_chosen(self, message: StatusList.Chosen) -> None:
        self.dismiss((message.statuses, message.excluded))

    def action_apply(self) -> None:
        """Close with the choice."""
        self._list.action_choose()

    def action_nothing(self) -> None:
        """Close with all values."""
        self.dismiss(((), ()))
