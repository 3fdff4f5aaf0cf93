"""The followed runs, above the keys, in every room: a line each, as far as there is room."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from storage.records.following import PinnedRun
from widgets.badges import STYLES
from widgets.follow.line import follow_line

TALL: Final = 32
"""From this height of the screen on there is room for more than one line."""
LINES: Final = 3
MARGIN: Final = 1


class FollowStrip(Widget):
    """Hidden while nothing is followed."""

    @dataclass
    class Picked(Message):
        """A followed run was clicked."""

        run_id: str

    @dataclass
    class ListWanted(Message):
        """The words that there are more were clicked."""

    def __init__(self) -> None:
        super().__init__()
        self._pins: tuple[PinnedRun, ...] = ()
        self._lines: list[Content] = []
        self._times: tuple[datetime, datetime] | None = None
        self.display = False

    def show(self, pins: tuple[PinnedRun, ...], now: datetime, as_of: datetime) -> None:
        """Takes the followed runs, the active ones first."""
        self._pins = pins
        self.display = bool(pins)
        self._fit()
        self.tick(now, as_of)

    def tick(self, now: datetime, as_of: datetime) -> None:
        """Paints again if a duration reads differently."""
        self._times = (now, as_of)
        lines = self._drawn()
        if len(lines) != len(self._lines) or not all(map(Content.is_same, lines, self._lines)):
            self._lines = lines
            self.refresh()

    def on_resize(self) -> None:
        """Draws for the new width."""
        self._fit()
        if self._times is not None:
            self.tick(*self._times)

    def render(self) -> Content:
        """The lines."""
        return Content("\n").join(self._lines)

    def on_click(self, event: events.Click) -> None:
        """Asks for the run under the pointer, or for the list where it does not name one."""
        shown = self._shown
        if event.y >= len(shown):
            return
        if self._hidden and event.y == len(shown) - 1 and event.x >= self.size.width - MARGIN - len(self._more):
            self.post_message(self.ListWanted())
        else:
            self.post_message(self.Picked(shown[event.y].run_id))

    @property
    def _shown(self) -> tuple[PinnedRun, ...]:
        return self._pins[: LINES if self.screen.size.height >= TALL else 1]

    @property
    def _hidden(self) -> int:
        return len(self._pins) - len(self._shown)

    @property
    def _more(self) -> str:
        return f" +{self._hidden} F" if self._hidden else ""

    def _fit(self) -> None:
        self.styles.height = max(1, len(self._shown))

    def _drawn(self) -> list[Content]:
        if self._times is None or not self._pins:
            return []
        now, as_of = self._times
        # All lines leave room for it: they stand in columns.
        width = self.size.width - 2 * MARGIN - len(self._more)
        lines: list[Content] = []
        for number, pinned in enumerate(self._shown, 1):
            more = self._more if number == len(self._shown) else ""
            line = follow_line(pinned, now, as_of, width)
            gap = " " * (width - line.cell_length) if more else ""
            lines.append(Content.assemble(" " * MARGIN, line, gap, (more, STYLES["quiet"])))
        return lines
