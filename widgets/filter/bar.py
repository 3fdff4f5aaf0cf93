"""The filter above the runs: views with their counts and what is missing; below, the query and its facets."""

from typing import Final

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText
from widgets.badges import STYLES, Tone
from widgets.filter.chips import Facet, FacetBar, ViewBar
from widgets.filter.extent import ExtentLine
from widgets.filter.search import FindSpans, SearchInput, SearchSuggestion, SuggestionList

WIDE: Final = 110
"""From this width on nothing is abbreviated."""
MARGIN: Final = 1
"""Cells before and behind the lines, as in the style sheet."""
REMARK: Final = 0.6
"""The share of the line that a remark may take, as in the style sheet."""


class FilterBar(Vertical):
    """Two lines, and the suggestions below them while the user types."""

    def __init__(self, understand: FindSpans) -> None:
        super().__init__()
        self._understand = understand
        self._extent: ExtentLine | None = None
        self._remark: tuple[tuple[SafeText, ...], Tone] = ((), "quiet")
        self._drawn = Content()

    def compose(self) -> ComposeResult:
        """Two lines from left to right, then the suggestions."""
        with Horizontal():
            yield ViewBar()
            yield Static(markup=False, id="extent")
        with Horizontal():
            yield SearchInput(self._understand)
            yield FacetBar()
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

    def show(self, extent: ExtentLine) -> None:
        """Show how many runs are shown, of how many, and what is missing."""
        self._extent = extent
        self._update()

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

    def offer(self, offers: tuple[SearchSuggestion, ...]) -> None:
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

    def _take(self, offer: SearchSuggestion) -> None:
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
        if self._extent is None:
            return
        room, variants = self._room, self._extent.variants(wide=self.size.width >= WIDE)
        text = next((text for text in variants if text.cell_length <= room), variants[-1])
        if not text.is_same(self._drawn):
            is_as_wide, self._drawn = text.cell_length == self._drawn.cell_length, text
            self.query_one("#extent", Static).update(text, layout=not is_as_wide)

    @property
    def _room(self) -> int:
        """Cells beside the views."""
        return self.size.width - 2 * MARGIN - self.views.full_width - 1
