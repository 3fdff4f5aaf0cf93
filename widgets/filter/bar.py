"""The filter above the runs: views, counts and extent on one line; the query and its facets on the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from app.times import day
from storage.records import Coverage
from widgets.badges import STYLES, Tone
from widgets.filter.chips import Facet, FacetBar, StatusCounts, ViewBar
from widgets.filter.search import FindSpans, SearchInput, Suggestion, SuggestionList


@dataclass(frozen=True, slots=True)
class Extent:
    """How many runs are shown, of how many."""

    matching: int
    held: int
    """Runs in the cache."""
    coverage: Coverage
    is_filtered: bool
    is_counted: bool = True
    """False: `matching` counts the runs found so far."""


def extent_text(extent: Extent, now: datetime, *, wide: bool) -> str:
    """`1,204 of 48,231 · complete since 1 May`, shorter where it is not wide; and what could not be kept."""
    dropped = f" · {extent.coverage.dropped:,} without an id" if extent.coverage.dropped else ""
    return _held_text(extent, now, wide=wide) + dropped


def _held_text(extent: Extent, now: datetime, *, wide: bool) -> str:
    so_far = "" if extent.is_counted else "+"
    of = f"{extent.matching:,}{so_far} of {extent.held:,}" if extent.is_filtered else f"{extent.held:,}"
    coverage = extent.coverage
    if coverage.whole:
        return f"{of} {'runs · complete' if wide and not extent.is_filtered else '· complete' if wide else '· all'}"
    if coverage.complete_since is None and not extent.held:
        return ""
    if coverage.complete_since is None:
        return f"{of} · {'history not complete yet' if wide else 'partial'}"
    since = day(coverage.complete_since, now)
    return f"{of} · {'complete since' if wide else 'since'} {since}"


WIDE: Final = 110
"""From this width on nothing is abbreviated."""
REMARK: Final = 0.6
"""The share of the line that a remark may take, as in the style sheet."""


class FilterBar(Vertical):
    """Two lines, and the suggestions below them while the user types."""

    def __init__(self, understand: FindSpans) -> None:
        super().__init__()
        self._understand = understand
        self._extent: tuple[Extent, datetime] | None = None
        self._remark: tuple[tuple[SafeText, ...], Tone] = ((), "quiet")
        self._said = ""

    def compose(self) -> ComposeResult:
        """Two lines from left to right, then the suggestions."""
        with Horizontal():
            yield ViewBar()
            yield StatusCounts(words=True, id="counts")
            yield Static(markup=False, id="extent")
        with Horizontal():
            yield SearchInput(self._understand)
            yield FacetBar()
            yield StatusCounts(words=False, id="counts-brief")
            yield Static(markup=False, id="remark")
        yield SuggestionList()

    @property
    def line(self) -> SearchInput:
        """The query line."""
        return self.query_one(SearchInput)

    @property
    def views(self) -> ViewBar:
        """The views."""
        return self.query_one(ViewBar)

    def show(self, extent: Extent, now: datetime) -> None:
        """Show how many runs are shown, of how many."""
        self._extent = (extent, now)
        self._update()

    def count(self, counts: Mapping[str, int], shown: frozenset[str]) -> None:
        """Show the number of runs by status, and which statuses the filter lets through."""
        for widget in self.query(StatusCounts):
            widget.show(counts, shown)

    def facets(self, facets: tuple[Facet, ...]) -> None:
        """Show the facets."""
        self.query_one(FacetBar).show(facets)

    def remark(self, *texts: SafeText, tone: Tone = "quiet") -> None:
        """Show the first of these texts that fits, in place of the facets; without texts the facets."""
        if (texts, tone) == self._remark:
            return
        self._remark = (texts, tone)
        self._say_remark()
        self.set_class(bool(texts), "-remark")

    def offer(self, offers: tuple[Suggestion, ...]) -> None:
        """Show suggestions for the query."""
        shown = self.query_one(SuggestionList)
        # An empty list that stays empty must not cost a layout at every letter.
        if offers or shown.display:
            shown.show(offers)

    def on_resize(self) -> None:
        """Show as many words as fit."""
        self._update()
        self._say_remark()

    @on(SearchInput.SuggestionMoved)
    def _choose(self, message: SearchInput.SuggestionMoved) -> None:
        message.stop()
        self.query_one(SuggestionList).choose(message.step)

    @on(SearchInput.SuggestionAccepted)
    def _take_chosen(self, message: SearchInput.SuggestionAccepted) -> None:
        message.stop()
        offer = self.query_one(SuggestionList).chosen
        if offer is None:
            self.line.action_leave()
        else:
            self._take(offer)

    @on(SuggestionList.Clicked)
    def _take_clicked(self, message: SuggestionList.Clicked) -> None:
        message.stop()
        self.line.focus()
        self._take(message.offer)

    def _take(self, offer: Suggestion) -> None:
        line, cursor = offer.applied(self.line.value)
        # After a value the next term begins; after a key its value is still missing.
        if not line[:cursor].endswith(":") and cursor == len(line):
            line, cursor = f"{line} ", cursor + 1
        self.line.value = line
        self.line.cursor_position = cursor

    def _say_remark(self) -> None:
        texts, tone = self._remark
        room = int(self.size.width * REMARK) - 1
        text = next((text for text in texts if cell_len(text) <= room), texts[-1] if texts else "")
        self.query_one("#remark", Static).update(Content.styled(text, STYLES[tone]))

    def _update(self) -> None:
        if self._extent is not None:
            text = extent_text(*self._extent, wide=self.size.width >= WIDE)
            is_as_wide, self._said = cell_len(text) == cell_len(self._said), text
            self.query_one("#extent", Static).update(Content.styled(text, STYLES["quiet"]), layout=not is_as_wide)
