"""The help: every key that works now, read from the bindings."""

from itertools import groupby
from textwrap import wrap
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from app.console.base.screen import KeyAction, KeyScope, key_actions
from app.console.sheets import Sheet
from widgets.after_refresh import after_refresh
from widgets.badges import STYLES

KEY_CELLS: Final = 13
DOES_CELLS: Final = 20
LEAST_MORE_CELLS: Final = 14
COLUMN_CELLS: Final = 60
"""With room for two of these, the keys are in two columns."""
GAP_CELLS: Final = 3
SCOPES: Final = {"here": "On this screen", "in the list": "Where the cursor is", "everywhere": "Everywhere"}


class KeyHelpScreen(Sheet[None]):
    """A sheet of keys."""

    LEAVE = "leave"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter", key_display="/", id="help.filter"),
        Binding("escape", "leave", "close", id="help.leave"),
        Binding("q,question_mark,enter", "dismiss", "close"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
    ]

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        order = list(SCOPES)
        self._actions = sorted(key_actions(screen), key=lambda each: order.index(each.scope))

    def compose(self) -> ComposeResult:
        """Compose the sheet."""
        with Vertical() as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "/ filters · esc closes"
            yield Input(placeholder="a key, or a word of what it does", compact=True)
            with VerticalScroll(), Horizontal():
                yield Static(markup=False, id="help-first")
                yield Static(markup=False, id="help-second")

    def on_mount(self) -> None:
        """Focus the keys, so that they scroll; the filter has its own key."""
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Wrap the lines for the new width."""
        after_refresh(self, self._fit)

    def action_filter(self) -> None:
        """Focus the filter."""
        self.query_one(Input).focus()

    def action_leave(self) -> None:
        """Clear the filter; without one, close."""
        field = self.query_one(Input)
        if not (field.value or field.has_focus):
            self.dismiss()
        field.value = ""
        self.query_one(VerticalScroll).focus()

    @on(Input.Submitted)
    def _to_the_keys(self) -> None:
        self.query_one(VerticalScroll).focus()

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scroll by pages."""
        self.action_scroll(pages * self.query_one(VerticalScroll).size.height)

    @on(Input.Changed)
    def _fit(self) -> None:
        room = self.query_one(VerticalScroll).scrollable_content_region.width
        is_wide = room >= 2 * COLUMN_CELLS + GAP_CELLS
        cells = (room - GAP_CELLS) // 2 if is_wide else room
        more_cells = max(LEAST_MORE_CELLS, cells - KEY_CELLS - 1 - DOES_CELLS - 1)
        words = self.query_one(Input).value.casefold().split()
        texts = [" ".join([*each.keys, each.does, each.more]).casefold() for each in self._actions]
        lines = [
            (each.scope, _lines(each, more_cells))
            for each, text in zip(self._actions, texts, strict=True)
            if all(word in text for word in words)
        ]
        first, second = self.query_one("#help-first", Static), self.query_one("#help-second", Static)
        columns = _halves(lines) if is_wide else (lines, [])
        first.update(_content(columns[0]) if lines else Content("No key does that here."))
        second.update(_content(columns[1]))
        second.display = is_wide


ActionLines = tuple[KeyScope, list[Content]]
"""The wrapped lines of one action's keys, and where it belongs."""


def _halves(lines: list[ActionLines]) -> tuple[list[ActionLines], list[ActionLines]]:
    """Split into two columns of about the same height; an action's lines stay together."""
    half, height = sum(len(each) for _, each in lines) / 2, 0
    for index, (_, each) in enumerate(lines):
        if height >= half:
            return lines[:index], lines[index:]
        height += len(each)
    return lines, []


def _content(lines: list[ActionLines]) -> Content:
    blocks = [
        Content("\n").join([Content.styled(SCOPES[scope], "$accent bold"), *(line for _, own in group for line in own)])
        for scope, group in groupby(lines, key=lambda each: each[0])
    ]
    return Content("\n\n").join(blocks)


def _lines(key_action: KeyAction, more_cells: int) -> list[Content]:
    first, *others = wrap(key_action.more, more_cells) or [""]
    keys = (f"{' '.join(key_action.keys):<{KEY_CELLS}} ", "bold")
    indent = f"{'':<{KEY_CELLS + 1 + DOES_CELLS}}"
    return [
        Content.assemble(keys, f"{key_action.does:<{DOES_CELLS}}", (first, STYLES["quiet"])),
        *(Content.styled(f"{indent}{other}", STYLES["quiet"]) for other in others),
    ]
