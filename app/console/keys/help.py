"""Every key that does something now, made from the bindings themselves."""

from itertools import groupby
from textwrap import wrap
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from app.console.key_actions import KeyAction, key_actions
from app.console.sheet import Sheet
from widgets.badges import STYLES

KEY_CELLS = 13
DOES_CELLS = 20
LEAST_MORE_CELLS = 14
PLACES = {"here": "On this screen", "in the list": "Where the cursor is", "everywhere": "Everywhere"}


class KeyHelpScreen(Sheet[None]):
    """A sheet of keys."""

    LEAVE = "dismiss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "close"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
    ]

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        self._deeds = key_actions(screen)

    def compose(self) -> ComposeResult:
        """The sheet."""
        with VerticalScroll() as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "esc closes"
            yield Static(markup=False)

    def on_resize(self) -> None:
        """Break the lines again, once it is known how long they may be."""
        self.call_after_refresh(self._fit)

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def _fit(self) -> None:
        room = self.query_one(VerticalScroll).scrollable_content_region.width
        self.query_one(Static).update(self._content(max(LEAST_MORE_CELLS, room - KEY_CELLS - 1 - DOES_CELLS - 1)))

    def _content(self, more_cells: int) -> Content:
        order = list(PLACES)
        found = sorted(self._deeds, key=lambda key_action: order.index(key_action.place))
        blocks: list[Content] = []
        for place, group in groupby(found, key=lambda key_action: key_action.place):
            lines = [
                Content.styled(PLACES[place], "$accent bold"),
                *(_line(key_action, more_cells) for key_action in group),
            ]
            blocks.append(Content("\n").join(lines))
        return Content("\n\n").join(blocks)


def _line(key_action: KeyAction, more_cells: int) -> Content:
    keys = " ".join(key_action.keys)
    more = f"\n{'':<{KEY_CELLS + 1 + DOES_CELLS}}".join(wrap(key_action.more, more_cells))
    return Content.assemble(
        (f"{keys:<{KEY_CELLS}} ", "bold"), f"{key_action.does:<{DOES_CELLS}}", (more, STYLES["quiet"])
    )
