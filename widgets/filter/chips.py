"""The clickable parts of the filter: the views with their numbers of runs, and facets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from textual.content import Content
from textual.message import Message

from app.text import SafeText
from widgets.badges import STYLES
from widgets.cells import shorten
from widgets.clickable import ClickableLine, ClickablePart

QUIET: Final = STYLES["quiet"]
NEW: Final = " [+]"
CHANGED: Final = "•"
"""Follows the current view's name once the filter differs from the view."""
BETWEEN: Final = " · "
"""Between two views."""
WIDEST_VALUE: Final = 16
"""The most cells of a facet's value."""
FACET_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class ViewTab:
    """A view as its tab shows it."""

    title: SafeText
    count: int | None = None
    """Runs in it. None: not counted."""


@dataclass
class ActionClicked(Message):
    """A part was clicked that stands for an action of the screen."""

    action: str


class ViewBar(ClickableLine):
    """The views as tabs with their numbers of runs; the current one is marked, `…` stands for those that do not fit."""

    @dataclass
    class Picked(Message):
        """A view was clicked."""

        index: int

    def __init__(self) -> None:
        super().__init__(self.parts)
        self._tabs: tuple[ViewTab, ...] = ()
        self._current = 0
        self._is_changed = False

    def show(self, tabs: tuple[ViewTab, ...], current: int, *, is_changed: bool) -> None:
        """Show the views, the one picked last, and whether the filter differs from it."""
        if (tabs, current, is_changed) != (self._tabs, self._current, self._is_changed):
            self._tabs, self._current, self._is_changed = tabs, current, is_changed
            self.refresh()

    @property
    def full_width(self) -> int:
        """Cells that all views take."""
        return _width(self._contents(counts=True)) + len(NEW) + 1

    def parts(self) -> Iterator[ClickablePart]:
        """As many views as fit, then the number of the others, then the button for a new one."""
        room = self.size.width - len(NEW) - 1
        # The names matter more than the numbers.
        tabs = self._contents(counts=True)
        if _width(tabs) > room:
            tabs = self._contents(counts=False)
        hidden = 0
        while len(tabs) > 1 and _width(tabs) + (4 if hidden else 0) > room:
            # The current view is never hidden.
            tabs.pop(-2 if tabs[-1][0] == self._current else -1)
            hidden += 1
        for number, (index, tab) in enumerate(tabs):
            yield Content.styled(BETWEEN * bool(number), QUIET), None
            yield tab, self.Picked(index)
        if hidden:
            yield Content.styled(f" …+{hidden}", QUIET), ActionClicked("views")
        yield Content.styled(NEW, QUIET), ActionClicked("save_view")

    def _contents(self, *, counts: bool) -> list[tuple[int, Content]]:
        return [(index, self._content(index, tab, counts=counts)) for index, tab in enumerate(self._tabs)]

    def _content(self, index: int, tab: ViewTab, *, counts: bool) -> Content:
        is_current = index == self._current
        count = f" {tab.count:,}" if tab.count is not None and (counts or is_current) else ""
        if not is_current:
            return Content.assemble((tab.title, QUIET), (count, STYLES["plain" if tab.count else "quiet"]))
        return Content.styled(f"[{tab.title}{CHANGED if self._is_changed else ''}{count}]", "$accent bold")


def _width(tabs: list[tuple[int, Content]]) -> int:
    return sum(tab.cell_length for _, tab in tabs) + len(BETWEEN) * (len(tabs) - 1)


@dataclass(frozen=True, slots=True)
class Facet:
    """One field that runs can be filtered by."""

    name: str
    value: SafeText
    """`any` where the filter does not restrict it."""
    is_set: bool
    action: str
    """The screen's action that changes it."""


class FacetBar(ClickableLine):
    """The facets with their values: `status failed ▾   repository any ▾`."""

    def __init__(self) -> None:
        super().__init__(self.parts)
        self._facets: tuple[Facet, ...] = ()

    def show(self, facets: tuple[Facet, ...]) -> None:
        """Show the facets."""
        if facets != self._facets:
            self._facets = facets
            self.refresh(layout=True)

    def parts(self) -> Iterator[ClickablePart]:
        """A part for each facet."""
        for index, facet in enumerate(self._facets):
            style = STYLES["warn"] if facet.is_set else QUIET
            name = " " * FACET_GAP * bool(index) + facet.name
            value = shorten(facet.value, WIDEST_VALUE)
            yield Content.assemble((f"{name} ", QUIET), (value, style), (" ▾", QUIET)), ActionClicked(facet.action)
