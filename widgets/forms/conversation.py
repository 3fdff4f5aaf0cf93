"""The instructions sent so far, above the field for the next ones."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from widgets.after_refresh import after_refresh
from widgets.runs.facts import QUIET, SentMessage, line, turn_lines

ELSEWHERE: Final = "Sent from this machine; what was said from elsewhere is not known."
NONE_FROM_HERE: Final = "Nothing was sent to it from this machine; what was said elsewhere is not known."
UNWRAPPED: Final = 10_000
"""Cells: the view wraps the lines by itself."""


class Conversation(VerticalScroll):
    """The turns that were sent from this machine, the last one in view."""

    DEFAULT_CSS = """
    Conversation {
        height: auto; max-height: 7; margin: 0 1 1 1; padding: 0 1; border-left: outer $panel;
        scrollbar-size-vertical: 1; scrollbar-background: $surface; scrollbar-color: $panel-lighten-2;
    }
    Conversation:focus { border-left: outer $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False),
        Binding("k", "scroll_up", "Up", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._text = Static(markup=False)

    def compose(self) -> ComposeResult:
        """The turns."""
        yield self._text

    def show(self, turns: Sequence[SentMessage], now: datetime) -> None:
        """Show the turns, oldest first, and remark on what is not known."""
        lines = [Content.styled(ELSEWHERE if turns else NONE_FROM_HERE, QUIET)]
        for number, turn in enumerate(turns, 1):
            lines += [line()] if number > 1 else []
            lines += turn_lines(number, turn, now, UNWRAPPED)
        self._text.update(Content("\n").join(lines))
        after_refresh(self, self._fit)

    def _fit(self) -> None:
        # A text updated while its page is hidden keeps its old height.
        self._text.refresh(layout=True)
        self.scroll_end(animate=False)
