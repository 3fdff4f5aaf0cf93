"""Which repositories, or branches, are wanted: found by a few letters of their names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from app.console.fuzzy import fuzzy
from app.console.picker import PickerScreen
from widgets.choice_lists import NEXT, Mark, Pick, PickList
from widgets.forms.inputs import LineInput

MOST: Final = 200
"""Names on the list at a time."""
PAGE: Final = 8

Picked = tuple[tuple[str, ...], tuple[str, ...]]
"""Those that are asked for, and those that are excluded."""


class ValuePicker(PickerScreen[Picked]):
    """Closes with the names wanted and those not wanted, none of either for any."""

    HINT = "tab marks, again excludes · enter applies · ctrl+x any"
    DEEDS: ClassVar[Mapping[str, str]] = {
        "tab marks, again excludes": "mark",
        "enter applies": "apply",
        "ctrl+x any": "nothing",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "mark", "mark", priority=True, id="picker.mark"),
        Binding("ctrl+x", "nothing", "any", priority=True, id="picker.any_value"),
        Binding("down,ctrl+n", "move(1)", "down", show=False, priority=True, id="picker.down"),
        Binding("up,ctrl+p", "move(-1)", "up", show=False, priority=True, id="picker.up"),
        Binding("pagedown", f"move({PAGE})", "page down", show=False, priority=True, id="picker.page_down"),
        Binding("pageup", f"move(-{PAGE})", "page up", show=False, priority=True, id="picker.page_up"),
    ]

    def __init__(self, title: str, names: Iterable[str], wanted: tuple[str, ...], excluded: tuple[str, ...]) -> None:
        """Prepare.

        Args:
            title: What is chosen.
            names: Those that are known, best first.
            wanted: Those asked for so far; they may be patterns.
            excluded: Those excluded so far.
        """
        super().__init__()
        self._title = title
        self._names = tuple(dict.fromkeys((*wanted, *excluded, *names)))
        only: Mark = "only"
        self._marks: dict[str, Mark] = {**dict.fromkeys(wanted, only), **dict.fromkeys(excluded, "not")}

    @property
    def title_text(self) -> str:
        """What is chosen."""
        return self._title

    def compose_choice(self) -> ComposeResult:
        """What to look for, and what is found."""
        yield LineInput(placeholder="type to find; * matches anything", compact=True)
        yield PickList()

    def on_mount(self) -> None:
        """Shows everything."""
        self._find("")

    @on(Input.Changed)
    def _on_typed(self, message: Input.Changed) -> None:
        self._find(message.value.strip())

    @on(Input.Submitted)
    def _on_entered(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Makes the choice; with nothing marked, the name under the cursor is meant."""
        value = self.query_one(PickList).value
        if not self._marks and value is not None:
            self._marks[value] = "only"
        self.dismiss(self._picked)

    @on(PickList.Clicked)
    def _on_clicked(self, message: PickList.Clicked) -> None:
        if message.is_final:
            self._marks[message.value] = "only"
            self.dismiss(self._picked)
        else:
            self.action_mark()

    @property
    def _picked(self) -> Picked:
        return tuple(self._marked("only")), tuple(self._marked("not"))

    def _marked(self, wanted: Mark) -> Iterator[str]:
        return (value for value, mark in self._marks.items() if mark == wanted)

    def action_mark(self) -> None:
        """Asks for the name under the cursor, then excludes it, then neither."""
        picks = self.query_one(PickList)
        if picks.value is None:
            return
        mark = NEXT[self._marks.pop(picks.value, None)]
        if mark is not None:
            self._marks[picks.value] = mark
        self._find(self.query_one(Input).value.strip())

    def action_move(self, step: int) -> None:
        """Moves the cursor."""
        self.query_one(PickList).move(step)

    def action_nothing(self) -> None:
        """Closes with any name."""
        self.dismiss(((), ()))

    def _find(self, text: str) -> None:
        self.query_one(PickList).show(tuple(self._found(text)), self._marks)

    def _found(self, text: str) -> Iterator[Pick]:
        if not text:
            yield from (Pick(name) for name in self._names[:MOST])
            return
        is_pattern = "*" in text
        if is_pattern:
            yield Pick(text, "pattern")
        # A pattern finds nothing by its letters: the star is not one of them.
        letters = text.replace("*", "")
        matches = [(match, name) for name in self._names if (match := fuzzy(letters, name)) is not None]
        for match, name in sorted(matches, key=lambda pair: -pair[0].score)[:MOST]:
            yield Pick(name, found=match.found)
        if not is_pattern and text not in self._names:
            yield Pick(text, "as typed")
