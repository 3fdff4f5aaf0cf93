"""The table of rules, the rule beside it, and the line above both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Static

from app.text import SafeText
from storage.records.decision import Decision
from widgets.automations.formatting import STRIP, RuleView, journal_lines
from widgets.badges import STYLES, Badge
from widgets.clickable import ClickableLine, ClickablePart
from widgets.cursor_view import HEADER
from widgets.forms.facts import FactPane
from widgets.forms.pages import coloured
from widgets.line_table import GAP, LineColumn, LineTable

_STATE: Final = LineColumn("state", 0, 8)
_NEXT: Final = LineColumn("next", 3, 10)
_FIRST_RESULT: Final = 4
_RESULTS: Final = tuple(
    LineColumn(f"{'results':>{STRIP}}"[index], _FIRST_RESULT + index, 1, gap=0) for index in range(STRIP)
)
_LONGEST_NAME: Final = 30


def _columns_for(width: int) -> tuple[LineColumn, ...]:
    """State, name, sentence, next time, the strip and a gap; the sentence gets the cells that the name leaves."""
    rest = width - _STATE.width - _NEXT.width - STRIP - 5 * GAP
    name = min(_LONGEST_NAME, max(16, rest * 3 // 5))
    return (_STATE, LineColumn("automation", 1, name), LineColumn("does", 2, max(4, rest - name)), _NEXT, *_RESULTS)


class RuleTable(LineTable[RuleView]):
    """Rules, a line each."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", key_display="enter", tooltip="On the whole screen", id="automations.open")
    ]

    def __init__(self, now: datetime) -> None:
        super().__init__(now, _columns_for)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many lines as rules, as far as there is room; the pane gets the rest."""
        del container, viewport, width
        return HEADER + self.total


class RulePane(FactPane[RuleView], can_focus=True):
    """One rule: its facts, its journal and its TOML."""

    DEFAULT_CSS = "RulePane > Static { height: auto; margin-top: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "down", show=False, id="pane.down"),
        Binding("k", "scroll_up", "up", show=False, id="pane.up"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._journal: tuple[Decision, ...] = ()
        self._did: Callable[[Decision], str] = lambda _: "made"
        self._written: tuple[SafeText, ...] = ()
        self._painted: tuple[Content, Content] | None = None
        self._now: datetime | None = None

    def compose(self) -> ComposeResult:
        """The facts, the journal, the table."""
        yield from super().compose()
        yield Static(id="rule-journal", markup=False)
        yield Static(id="rule-written", markup=False)

    def show_more(
        self, view: RuleView, journal: tuple[Decision, ...], written: tuple[SafeText, ...], now: datetime
    ) -> None:
        """Show the rule's whole journal, and its TOML; empty: unknown."""
        self._did, self._journal, self._written = view.did, journal, written
        self._paint(now)

    def on_resize(self) -> None:
        """Wrap the journal's lines for the new width."""
        if self._now is not None:
            self._paint(self._now)

    def tick(self, now: datetime) -> None:
        """Repaint what changed."""
        super().tick(now)
        self._paint(now)

    def _paint(self, now: datetime) -> None:
        self._now = now
        journal = journal_lines(self._journal, now, self.scrollable_content_region.width - 4, self._did)
        nothing = Content.styled("Nothing has set it off yet.", STYLES["quiet"])
        parts = _titled("Journal", journal if self._journal else nothing), _written(self._written)
        if parts != self._painted:
            self._painted = parts
            for name, part in zip(("#rule-journal", "#rule-written"), parts, strict=True):
                self.query_one(name, Static).update(part)


def _titled(title: str, content: Content) -> Content:
    return Content("\n").join((Content.styled(title, "$accent bold"), content))


def _written(lines: tuple[SafeText, ...]) -> Content:
    return _titled("As it is written", Content("\n").join(map(coloured, lines))) if lines else Content()


@dataclass(frozen=True, slots=True)
class Status:
    """The content of the line above the table."""

    bot: Badge
    """Whether a bot is at work."""
    hint: SafeText
    """Which bot; if none is at work, how to start one."""
    waiting: int = 0
    """Requests that wait for approval."""


class StatusLine(ClickableLine):
    """Whether a bot is at work, and how many requests wait for a person."""

    @dataclass
    class ApprovalsClicked(Message):
        """The number of pending requests was clicked."""

    def __init__(self) -> None:
        super().__init__(self.parts, id="automations-status")
        self._status: Status | None = None

    def show(self, status: Status | None) -> None:
        """Show it; None: the bot has no work."""
        if status != self._status:
            self._status = status
            self.refresh()

    def parts(self) -> Iterator[ClickablePart]:
        """The parts from left to right, the pending requests first."""
        if (status := self._status) is None:
            return
        yield Content(" "), None
        if status.waiting:
            word = "waits" if status.waiting == 1 else "wait"
            waits = (f"! {status.waiting:,} {word} for approval  ", f"{STYLES['warn']} bold"), ("v", "$accent bold")
            yield Content.assemble(*waits), self.ApprovalsClicked()
            yield Content("   "), None
        yield Content.assemble((status.bot.text, status.bot.style), (f" {status.hint}", STYLES["quiet"])), None
