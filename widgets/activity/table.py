"""The table of writes, the bar above it, and the facts of one."""

from datetime import datetime
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from widgets.activity.formatting import ActivityEntry, sent
from widgets.badges import STYLES
from widgets.batch import BatchView
from widgets.clickable import Chip, ChipBar
from widgets.forms.facts import FactPane
from widgets.forms.inputs import ListSearch
from widgets.line_table import GAP, LineColumn, LineTable

PLACEHOLDERS: Final = ("/ search what was asked, sent or said", "/ search")
ActivityRow = ActivityEntry | BatchView
_OUTCOME: Final = LineColumn("outcome", 0, 13)
_WHAT: Final = LineColumn("what", 1, 19)
_BY: Final = LineColumn("by", 4, 14)
_WHEN: Final = LineColumn("when", 5, 9)
_RESULT_FROM: Final = 100
"""Narrower tables leave the result and the actor to the facts beside them."""


class ActivityBar(Horizontal):
    """Views, search, filters and extent."""

    DEFAULT_CSS = """
    ActivityBar {
        height: 1;
        padding: 0 1;
        ListSearch {
            width: 1fr; min-width: 8; max-width: 44; height: 1; margin: 0 2 0 0; padding: 0 1;
            border: none; background: $surface;
        }
        ListSearch:focus { border: none; background: $panel; }
        #activity-extent { width: auto; dock: right; }
    }
    """

    def compose(self) -> ComposeResult:
        """The parts, from left to right."""
        yield ChipBar(id="activity-views")
        yield ListSearch(PLACEHOLDERS)
        yield ChipBar(id="activity-filters")
        yield Static(id="activity-extent", markup=False)

    def show(self, views: tuple[Chip, ...], filters: tuple[Chip, ...], extent: str) -> None:
        """Show the views, the filters, and how many entries are shown."""
        self.query_one("#activity-views", ChipBar).show(views)
        self.query_one("#activity-filters", ChipBar).show(filters)
        self.query_one("#activity-extent", Static).update(Content.styled(extent, STYLES["quiet"]))


def _columns_for(width: int) -> tuple[LineColumn, ...]:
    """Outcome, what, about and when; result and actor if there is room."""
    fixed = (_OUTCOME, _WHAT, _WHEN)
    rest = width - sum(column.width + GAP for column in fixed) - GAP
    if width < _RESULT_FROM:
        return (_OUTCOME, _WHAT, LineColumn("about", 2, max(8, rest)), _WHEN)
    rest -= _BY.width + 2 * GAP
    about = rest * 3 // 5
    return (_OUTCOME, _WHAT, LineColumn("about", 2, about), LineColumn("result", 3, rest - about), _BY, _WHEN)


class ActivityTable(LineTable[ActivityRow]):
    """Writes, a line each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter",
            "choose",
            "open",
            key_display="enter",
            tooltip="Go to its run or organization",
            id="activity.open",
        )
    ]

    def __init__(self, now: datetime) -> None:
        super().__init__(now, _columns_for)


class ActivityPane(FactPane[ActivityRow], can_focus=True):
    """The facts of one entry, and its request."""

    DEFAULT_CSS = "ActivityPane .activity-pane--sent { height: auto; margin-top: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "down", show=False, id="pane.down"),
        Binding("k", "scroll_up", "up", show=False, id="pane.up"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._sent: tuple[SafeText, ...] | None = None

    def compose(self) -> ComposeResult:
        """The facts, then the request's body."""
        yield from super().compose()
        yield Static(classes="activity-pane--sent", markup=False)

    def tick(self, now: datetime) -> None:
        """Repaint what changed."""
        super().tick(now)
        body = sent(self._item) if isinstance(self._item, ActivityEntry) else ()
        if body != self._sent:
            self._sent = body
            self.query_one(".activity-pane--sent", Static).update(_body(body))


def _body(lines: tuple[SafeText, ...]) -> Content:
    if not lines:
        return Content()
    return Content("\n").join((Content.styled("What was sent", "$accent bold"), *map(Content, lines)))
