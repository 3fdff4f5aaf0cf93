"""How many runs of each status there are among those that are wanted; a click asks for one of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from widgets.badges import STYLES, run_badge

KNOWN: Final = ("working", "queued", "completed", "failed")
"""In this order; others follow."""
MOST: Final = 7
"""Statuses on show."""
_THOUSAND: Final = 1_000
_MANY: Final = 10_000


class StatusCounts(Widget):
    """Numbers by status; those that are filtered away are quiet."""

    @dataclass
    class Clicked(Message):
        """A status was clicked."""

        status: str

    def __init__(self, *, words: bool, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        """Nothing is counted yet.

        Args:
            words: Whether there is room for the statuses' names beside their glyphs.
            id: Its name in the style sheet.
        """
        super().__init__(id=id)
        self._words = words
        self._counts: tuple[tuple[str, int], ...] = ()
        self._shown: frozenset[str] = frozenset()

    def show(self, counts: Mapping[str, int], shown: frozenset[str]) -> None:
        """Takes the numbers.

        Args:
            counts: By status, whatever the filter itself says of statuses.
            shown: The statuses that the filter lets through.
        """
        others = sorted(set(counts) - set(KNOWN), key=lambda status: -counts[status])
        known = tuple((status, counts[status]) for status in (*KNOWN, *others) if counts.get(status))[:MOST]
        if (known, shown) == (self._counts, self._shown):
            return
        width = self._width
        self._counts, self._shown = known, shown
        self.refresh(layout=self._width != width)

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*((text, style) for text, style, _ in self._parts()))

    def on_click(self, event: events.Click) -> None:
        """Names the status under the pointer."""
        x = 0
        for text, _, status in self._parts():
            x += cell_len(text)
            if event.x < x:
                self.post_message(self.Clicked(status))
                return

    @property
    def _width(self) -> int:
        return sum(cell_len(text) for text, _, _ in self._parts())

    def _parts(self) -> Iterator[tuple[str, str, str]]:
        for status, count in self._counts:
            badge = run_badge(status)
            text = f"{badge.glyph} {count:,} {badge.word}   " if self._words else f"{badge.glyph}{_brief(count)}  "
            yield text, badge.style if status in self._shown else STYLES["quiet"], status


def _brief(count: int) -> str:
    return f"{count:,}" if count < _MANY else f"{count // _THOUSAND:,}k"
