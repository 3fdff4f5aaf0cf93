"""The clickable parts of the filter: saved views, counts by status, and facets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.text import SafeText
from widgets.badges import STYLES, run_badge
from widgets.cells import shorten

NEW: Final = " [+]"
QUIET: Final = "$foreground 70%"
HERE: Final = "$accent bold"
CHANGED: Final = "•"
"""Behind the name of the current view, once what is shown is no longer what it asks for."""


@dataclass(frozen=True, slots=True)
class _Tab:
    text: str
    style: str
    index: int | None
    """None: all views, or a new one."""


class ViewBar(Widget):
    """The views; the current one is marked, and all that do not fit are behind the `…`."""

    @dataclass
    class Picked(Message):
        """A view was clicked."""

        index: int

    @dataclass
    class ListRequested(Message):
        """All views are asked for."""

    @dataclass
    class NewRequested(Message):
        """What is shown shall become a view."""

    def __init__(self) -> None:
        super().__init__()
        self._titles: tuple[SafeText, ...] = ()
        self._current = 0
        self._is_changed = False

    def show(self, titles: tuple[SafeText, ...], current: int, *, is_changed: bool) -> None:
        """Takes the views.

        Args:
            titles: Their names.
            current: The one that was picked last.
            is_changed: What is shown is no longer what that one asks for.
        """
        if (titles, current, is_changed) != (self._titles, self._current, self._is_changed):
            self._titles, self._current, self._is_changed = titles, current, is_changed
            self.refresh()

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*((tab.text, tab.style) for tab in self._tabs()))

    def on_click(self, event: events.Click) -> None:
        """Asks for what is under the pointer."""
        x = 0
        for tab in self._tabs():
            x += cell_len(tab.text)
            if event.x < x:
                if tab.index is not None:
                    self.post_message(self.Picked(tab.index))
                else:
                    self.post_message(self.NewRequested() if tab.text == NEW else self.ListRequested())
                return

    def _tabs(self) -> Iterator[_Tab]:
        tabs = [self._tab(index) for index in range(len(self._titles))]
        room = self.size.width - len(NEW) - 1
        hidden = 0
        while len(tabs) > 1 and sum(cell_len(tab.text) for tab in tabs) + (4 if hidden else 0) > room:
            # The current one is never among those that make room.
            tabs.pop(-2 if tabs[-1].index == self._current else -1)
            hidden += 1
        yield from tabs
        if hidden:
            yield _Tab(f" …+{hidden}", QUIET, None)
        yield _Tab(NEW, QUIET, None)

    def _tab(self, index: int) -> _Tab:
        title = self._titles[index]
        if index != self._current:
            return _Tab(f" {title} ", QUIET, index)
        return _Tab(f"[{title}{CHANGED if self._is_changed else ''}]", HERE, index)


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


WIDEST = 16
"""Cells of a value."""
GAP = 3


@dataclass(frozen=True, slots=True)
class Facet:
    """One thing to filter by."""

    name: str
    value: SafeText
    """`any` where nothing is asked for."""
    is_set: bool


class FacetBar(Widget):
    """`status failed ▾   repository any ▾`."""

    @dataclass
    class Clicked(Message):
        """One of them was clicked."""

        name: str

    def __init__(self) -> None:
        super().__init__()
        self._facets: tuple[Facet, ...] = ()

    def show(self, facets: tuple[Facet, ...]) -> None:
        """Takes what the filter says."""
        if facets != self._facets:
            self._facets = facets
            self.refresh(layout=True)

    def render(self) -> Content:
        """The line."""
        return Content.assemble(*((text, style) for part in self._parts() for text, style in part[1]))

    def on_click(self, event: events.Click) -> None:
        """Names the one under the pointer."""
        x = 0
        for name, part in self._parts():
            x += sum(cell_len(text) for text, _ in part)
            if event.x < x:
                self.post_message(self.Clicked(name))
                return

    def _parts(self) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
        for index, facet in enumerate(self._facets):
            style = STYLES["warn"] if facet.is_set else STYLES["quiet"]
            name = " " * GAP * bool(index) + facet.name
            value = shorten(facet.value, WIDEST)
            yield facet.name, ((f"{name} ", STYLES["quiet"]), (value, style), (" ▾", STYLES["quiet"]))
