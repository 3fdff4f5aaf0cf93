"""What was said to an agent before, above the field for what it is told next."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from widgets.line_text import LineText
from widgets.runs.facts import QUIET, Turn, line, turn_lines, wrapped

NONE_FROM_HERE: Final = "Nothing was sent to this run from this machine."
ELSEWHERE: Final = "What was said from elsewhere is not known here: the service lists runs, not what was said to them."


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
        self._shown: tuple[Sequence[Turn], datetime] | None = None
        """None: the turns were not read yet."""

    def compose(self) -> ComposeResult:
        """The lines."""
        yield LineText()

    def show(self, turns: Sequence[Turn], now: datetime) -> None:
        """Show the turns, oldest first, and say what is not known."""
        self._shown = turns, now
        self._draw()
        self.call_after_refresh(self.scroll_end, animate=False)

    def on_resize(self) -> None:
        """Wrap the lines to the new width."""
        self._draw()

    def _draw(self) -> None:
        width = self.scrollable_content_region.width
        if self._shown is None or width <= 0:
            return
        turns, now = self._shown
        lines = wrapped(ELSEWHERE if turns else f"{NONE_FROM_HERE} {ELSEWHERE}", width, QUIET)
        for number, turn in enumerate(turns, 1):
            lines += (
                [line(), *turn_lines(number, turn, now, width)] if number > 1 else turn_lines(number, turn, now, width)
            )
        self.query_one(LineText).take(lines)
