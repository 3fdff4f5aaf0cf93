"""The clickable parts of the filter: saved views, counts by status, and facets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from textual.content import Content
from textual.message import Message

from app.text import SafeText
from widgets.badges import STYLES, run_badge
from widgets.cells import shorten
from widgets.clickable import ClickableLine, Part

QUIET: Final = STYLES["quiet"]
NEW: Final = " [+]"
CHANGED: Final = "•"
"""Follows the current view's name once the filter differs from the view."""
KNOWN_STATUSES: Final = ("working", "queued", "completed", "failed")
"""Counted in this order; other statuses follow, the most frequent first."""
MOST_STATUSES: Final = 7
WIDEST_VALUE: Final = 16
"""Cells of a facet's value."""
FACET_GAP: Final = 3
_THOUSAND: Final = 1_000
_MANY: Final = 10_000


@dataclass
class SheetRequested(Message):
    """A sheet that changes the query was requested: of a facet, `views` or `save_view`."""

    name: str


class ViewBar(ClickableLine):
    """The saved views as tabs; the current one is marked, and `…` stands for those that do not fit."""

    @dataclass
    class Picked(Message):
        """A view was clicked."""

        index: int

    def __init__(self) -> None:
        super().__init__(self.parts)
        self._titles: tuple[SafeText, ...] = ()
        self._current = 0
        self._is_changed = False

    def show(self, titles: tuple[SafeText, ...], current: int, *, is_changed: bool) -> None:
        """Show the views, the one picked last, and whether the filter differs from it."""
        if (titles, current, is_changed) != (self._titles, self._current, self._is_changed):
            self._titles, self._current, self._is_changed = titles, current, is_changed
            self.refresh()

    @property
    def full_width(self) -> int:
        """Cells that all views take."""
        return sum(self._tab(index).cell_length for index in range(len(self._titles))) + len(NEW) + 1

    def parts(self) -> Iterator[Part]:
        """As many views as fit, then the number of the others, then the button for a new one."""
        tabs = list(enumerate(map(self._tab, range(len(self._titles)))))
        room = self.size.width - len(NEW) - 1
        hidden = 0
        while len(tabs) > 1 and sum(tab.cell_length for _, tab in tabs) + (4 if hidden else 0) > room:
            # The current view is never hidden.
            tabs.pop(-2 if tabs[-1][0] == self._current else -1)
            hidden += 1
        yield from ((tab, self.Picked(index)) for index, tab in tabs)
        if hidden:
            yield Content.styled(f" …+{hidden}", QUIET), SheetRequested("views")
        yield Content.styled(NEW, QUIET), SheetRequested("save_view")

    def _tab(self, index: int) -> Content:
        title = self._titles[index]
        if index != self._current:
            return Content.styled(f" {title} ", QUIET)
        return Content.styled(f"[{title}{CHANGED if self._is_changed else ''}]", "$accent bold")


class StatusCounts(ClickableLine):
    """How many runs have each status; statuses that the filter excludes are drawn quietly."""

    @dataclass
    class Clicked(Message):
        """A status was clicked."""

        status: str

    def __init__(self, *, words: bool, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(self.parts, id=id)
        self._words = words
        self._counts: tuple[tuple[str, int], ...] = ()
        self._shown: frozenset[str] = frozenset()
        self._final: frozenset[str] = frozenset()

    def show(self, counts: Mapping[str, int], shown: frozenset[str], final: frozenset[str]) -> None:
        """Show the runs by status, counted without the filter's own statuses; which it lets through, and are final."""
        others = sorted(set(counts) - set(KNOWN_STATUSES), key=lambda status: -counts[status])
        known = tuple((s, counts[s]) for s in (*KNOWN_STATUSES, *others) if counts.get(s))[:MOST_STATUSES]
        if (known, shown, final) == (self._counts, self._shown, self._final):
            return
        width = self.width
        self._counts, self._shown, self._final = known, shown, final
        self.refresh(layout=self.width != width)

    def parts(self) -> Iterator[Part]:
        """A part for each status."""
        for status, count in self._counts:
            badge = run_badge(status, is_final=status in self._final)
            text = f"{badge.glyph} {count:,} {badge.word}   " if self._words else f"{badge.glyph}{_brief(count)}  "
            yield Content.styled(text, badge.style if status in self._shown else QUIET), self.Clicked(status)

    @property
    def width(self) -> int:
        """Cells that they take."""
        return sum(content.cell_length for content, _ in self.parts())


def _brief(count: int) -> str:
    return f"{count:,}" if count < _MANY else f"{count // _THOUSAND:,}k"


@dataclass(frozen=True, slots=True)
class Facet:
    """One field that runs can be filtered by."""

    name: str
    value: SafeText
    """`any` where the filter does not restrict it."""
    is_set: bool


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

    def parts(self) -> Iterator[Part]:
        """A part for each facet."""
        for index, facet in enumerate(self._facets):
            style = STYLES["warn"] if facet.is_set else QUIET
            name = " " * FACET_GAP * bool(index) + facet.name
            value = shorten(facet.value, WIDEST_VALUE)
            yield Content.assemble((f"{name} ", QUIET), (value, style), (" ▾", QUIET)), SheetRequested(facet.name)
