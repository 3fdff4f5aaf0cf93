"""The help: every key that works now, read from the bindings."""

from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input

from app.console.base import key_actions
from app.console.sheets import Sheet
from widgets.kit.badges import STYLES
from widgets.kit.line_text import LinePane

KEY_CELLS: Final = 13
DOES_CELLS: Final = 20
LEAST_MORE_CELLS: Final = 14
SCOPES: Final = {"here": "On this screen", "in the list": "Where the cursor is", "everywhere": "Everywhere"}


class KeyHelpScreen(Sheet[None]):
    """A sheet of keys."""

    LEAVE = "leave"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", id="help.filter"),
        Binding("escape", "leave", "close", id="help.leave"),
        Binding("q,question_mark,enter", "dismiss", "close"),
    ]

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        order = list(SCOPES)
        self._actions = sorted(key_actions(screen), key=lambda each: order.index(each.scope))

    def compose(self) -> ComposeResult:
        """Compose the sheet."""
        with Vertical() as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "/ filter · : everything else · esc close"
            yield Input(placeholder="search keys and actions", compact=True)
            yield LinePane(lambda width: [*self._lines(width)])

    def on_mount(self) -> None:
        """Focus the keys, so that they scroll; the filter has its own key."""
        self.query_one(LinePane).focus()

    def action_filter(self) -> None:
        """Focus the filter."""
        self.query_one(Input).focus()

    def action_leave(self) -> None:
        """Clear the filter; without one, close."""
        field = self.query_one(Input)
        if not (field.value or field.has_focus):
            self.dismiss()
        field.value = ""
        self.query_one(LinePane).focus()

    @on(Input.Submitted)
    def _to_the_keys(self) -> None:
        self.query_one(LinePane).focus()

    @on(Input.Changed)
    def _filter(self) -> None:
        self.query_one(LinePane).paint()

    def _lines(self, width: int) -> Iterator[Content]:
        words = self.query_one(Input).value.casefold().split()
        matches = [
            each
            for each in self._actions
            if each.keys and all(word in " ".join([*each.keys, each.does, each.more]).casefold() for word in words)
        ]
        if not matches:
            yield Content("No key found. Search the palette: press :.")
        for scope, group in groupby(matches, key=lambda each: each.scope):
            yield Content.styled(SCOPES[scope], "$accent bold")
            for each in group:
                keys = (f"{' '.join(each.keys):<{KEY_CELLS}} ", "bold")
                does = f"{each.does:<{DOES_CELLS}}"
                for line in wrap(each.more, max(LEAST_MORE_CELLS, width - KEY_CELLS - 1 - DOES_CELLS)) or [""]:
                    yield Content.assemble(keys, does, (line, STYLES["quiet"]))
                    keys = (" " * (KEY_CELLS + 1), "")
                    does = " " * DOES_CELLS
            yield Content()
