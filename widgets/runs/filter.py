"""The filter above the runs: views with their counts and the missing part; below, the query and its facets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from msgspec import Struct
from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from app.engine.text import SafeText, safe_text
from storage.records import RunFilter
from storage.records.query import Suggestion
from widgets.kit import hidden
from widgets.kit.badges import STYLES, Tone
from widgets.kit.cells import fit
from widgets.kit.line_text import ClickableLine, SteadyText, clickable, unscrolled_size
from widgets.runs.extent import ExtentLine

MARGIN: Final = 1
"""Cells before and behind the lines, as in the style sheet."""
REMARK: Final = 0.6
"""The share of the line that a remark may take, as in the style sheet."""
QUIET: Final = STYLES["quiet"]
NEW: Final = " [+]"
BETWEEN: Final = " · "
KINDS: Final = ("sign", "key", "value", "word", "problem")

StyledSpan = tuple[int, int, str]
"""A part of the query: its first character, the one behind its last, and its kind, one of `KINDS`."""
FindSpans = Callable[[str], Sequence[StyledSpan]]


class ViewTab(Struct, frozen=True):
    """The facts that a view's tab shows."""

    title: SafeText
    count: int | None = None
    """The number of runs in the view; None if not counted."""


class ViewBar(ClickableLine):
    """The views as tabs with their numbers of runs; the current one is marked, `…` replaces those that do not fit."""

    tabs: reactive[tuple[ViewTab, ...]] = reactive(())
    current: reactive[int] = reactive(0)
    """The index of the view that was picked last."""
    is_changed: reactive[bool] = reactive(default=False)
    """Whether the filter differs from that view."""
    can_save = True
    """Whether a click makes a new view."""

    @property
    def full_width(self) -> int:
        """Cells that all views take."""
        return _width(self._contents(counts=True)) + len(NEW) + 1

    def parts(self) -> Iterator[Content]:
        """As many views as fit, then the number of the others, then the button for a new one."""
        room, hidden = self.size.width - len(NEW) - 1, 0
        tabs = self._contents(counts=True)
        if _width(tabs) > room:
            tabs = self._contents(counts=False)  # The names matter more than the numbers.
        while len(tabs) > 1 and _width(tabs) + (4 if hidden else 0) > room:
            # The current view is never hidden.
            tabs.pop(-2 if tabs[-1][0] == self.current else -1)
            hidden += 1
        for number, (index, tab) in enumerate(tabs):
            yield Content.styled(BETWEEN * bool(number), QUIET)
            yield clickable(tab, f"screen.view({index})")
        if hidden:
            yield clickable(Content.styled(f" …+{hidden}", QUIET), "screen.views")
        if self.can_save:
            yield clickable(Content.styled(NEW, QUIET), "screen.save_view")

    def _contents(self, *, counts: bool) -> list[tuple[int, Content]]:
        parts = []
        for index, tab in enumerate(self.tabs):
            is_current = index == self.current
            count = f" {tab.count:,}" if tab.count is not None and (counts or is_current) else ""
            content = Content.assemble((tab.title, QUIET), (count, STYLES["plain" if tab.count else "quiet"]))
            if is_current:
                content = Content.styled(f"[{tab.title}{'•' if self.is_changed else ''}{count}]", "$accent bold")
            parts.append((index, content))
        return parts


def _width(tabs: list[tuple[int, Content]]) -> int:
    return sum(tab.cell_length for _, tab in tabs) + len(BETWEEN) * (len(tabs) - 1)


class FacetBar(ClickableLine):
    """The facets: `status ▾   repository ▾`."""

    condition: reactive[RunFilter] = reactive(RunFilter)

    def parts(self) -> Iterator[Content]:
        """The filter's status, repository, branch and time; the line has their values."""
        by = self.condition
        status = by.statuses or by.not_statuses or by.active or by.ended or by.stuck or by.followed
        for action, name, is_set in (
            ("pick_values('status')", "status ▾", bool(status)),
            ("pick_values('repo')", "   repository ▾", bool(by.repositories or by.not_repositories)),
            ("pick_values('branch')", "   branch ▾", bool(by.branches or by.not_branches)),
            ("pick_dates", "   started ▾", bool(by.since or by.until)),
        ):
            yield clickable(Content.styled(name, STYLES["warn"] if is_set else QUIET), f"screen.{action}")


class SuggestionList(Widget):
    """The suggestions; the first one is chosen at first."""

    virtual_size = unscrolled_size()

    class Clicked(Message):
        """A suggestion was clicked, and is the chosen one now."""

    def __init__(self) -> None:
        super().__init__()
        self._offers: tuple[Suggestion, ...] = ()
        self._chosen = 0
        self.display = False

    @property
    def chosen(self) -> Suggestion | None:
        """The suggestion that tab inserts, or None."""
        return self._offers[self._chosen] if self._offers else None

    def show(self, offers: tuple[Suggestion, ...]) -> None:
        """Show the suggestions, whose text must be safe."""
        self._offers, self._chosen = offers[:8], 0
        self.display = bool(self._offers)
        self.refresh(layout=True)

    def choose(self, step: int) -> None:
        """Choose another one, wrapping around the ends."""
        if self._offers:
            self._chosen = (self._chosen + step) % len(self._offers)
            self.refresh()

    def render(self) -> Content:
        """Draw one line per suggestion."""
        width = max((cell_len(offer.insert) for offer in self._offers), default=0)
        lines = []
        for index, offer in enumerate(self._offers):
            here = " on $block-cursor-blurred-background" if index == self._chosen else ""
            name = (" ▸ " if here else "   ", f"$accent{here}"), (fit(offer.insert, width), f"$foreground{here}")
            about = f"  {offer.about} " if offer.about else " ", f"$foreground 70%{here}"
            lines.append(Content.assemble(*name, about))
        return Content("\n").join(lines)

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked suggestion."""
        if event.y < len(self._offers):
            self._chosen = event.y
            self.post_message(self.Clicked())


class SearchInput(Input):
    """The query line; escape clears it, enter goes to the rows, tab inserts the suggestion."""

    virtual_size = unscrolled_size()
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"search--{kind}" for kind in KINDS}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "leave", "to the runs", id="search.leave"),
        Binding("tab", "take", "complete", id="search.take"),
        hidden("down", "choose(1)", "next suggestion", id="search.next"),
        hidden("up", "choose(-1)", "previous suggestion", id="search.previous"),
        Binding("escape", "leave(True)", "clear", id="search.clear"),
    ]

    @dataclass
    class Left(Message):
        """The focus goes back to the rows."""

        is_cleared: bool

    def __init__(self, understand: FindSpans, offers: SuggestionList) -> None:
        hint, colours = "/ search, or status:failed repo:acme/* since:7d", QueryHighlighter(self, understand)
        super().__init__(placeholder=hint, compact=True, select_on_focus=False, highlighter=colours)
        self._offers = offers

    def validate_value(self, value: str) -> str:
        """Remove terminal control characters from typed or pasted text."""
        return safe_text(value, limit=1_000)

    def put(self, line: str, cursor: int | None = None) -> None:
        """Replace the query without announcing a change."""
        with self.prevent(Input.Changed):
            self.value = line
        self.cursor_position = len(self.value) if cursor is None else cursor

    def action_leave(self, is_cleared: bool = False) -> None:  # noqa: FBT002 # as Textual calls it
        """Leave the query line, and clear it if asked to."""
        self.post_message(self.Left(is_cleared))

    def action_take(self) -> None:
        """Insert the chosen suggestion; without one leave the line."""
        if (offer := self._offers.chosen) is None:
            self.action_leave()
            return
        before, rest = self.value[: offer.start] + offer.insert, self.value[offer.end :]
        # After a value the next term begins; after a key its value is still missing.
        if not before.endswith(":") and not rest:
            before += " "
        self.value = before + rest
        self.cursor_position = len(before)

    def action_choose(self, step: int) -> None:
        """Choose another suggestion."""
        self._offers.choose(step)

    def on_blur(self) -> None:
        """Scroll the query back to its beginning."""
        self.cursor_position = 0


@dataclass(eq=False)
class QueryHighlighter(Highlighter):
    """Colours the parts of a query as the style sheet says."""

    _widget: Input
    _understand: FindSpans

    def highlight(self, text: Text) -> None:
        """Colour the parts of the query by their kinds."""
        for start, end, kind in self._understand(text.plain):
            # Without its background: the input's own shows, focused or not.
            style = self._widget.get_component_rich_style(f"search--{kind}")
            text.stylize(Style(color=style.color, bold=style.bold, underline=style.underline), start, end)


class FilterBar(Vertical):
    """Two lines, and the suggestions below them while the user types."""

    def __init__(self, understand: FindSpans) -> None:
        super().__init__()
        self._offers = SuggestionList()
        self.line, self.views = SearchInput(understand, self._offers), ViewBar()
        self.facets = FacetBar()
        self._extent: ExtentLine | None = None
        self._remark: tuple[tuple[SafeText, ...], Tone] = ((), "quiet")
        self._extent_width = 0
        """Cells of the extent: kept while its words get fewer, so that a letter does not lay out the screen."""

    def compose(self) -> ComposeResult:
        """Two lines from left to right, then the suggestions."""
        with Horizontal():
            yield self.views
            yield SteadyText(id="extent")
        with Horizontal():
            yield self.line
            yield self.facets
            yield SteadyText(id="remark")
        yield self._offers

    def on_mount(self) -> None:
        """Resize the views when their width changes."""
        for name in ("tabs", "current", "is_changed"):
            self.watch(self.views, name, self._show_extent, init=False)

    def show(self, extent: ExtentLine) -> None:
        """Show how many runs are shown, of how many, and the missing part."""
        self._extent = extent
        self._show_extent()

    def remark(self, *texts: SafeText, tone: Tone = "quiet") -> None:
        """Show the first of these texts that fits, in place of the facets; without texts the facets."""
        if (texts, tone) == self._remark:
            return
        self._remark = (texts, tone)
        self._show_remark()
        self.set_class(bool(texts), "-remark")

    def offer(self, offers: tuple[Suggestion, ...]) -> None:
        """Show suggestions for the query."""
        # An empty list that stays empty must not cost a layout at every letter.
        if offers or self._offers.display:
            self._offers.show(offers)

    def on_resize(self) -> None:
        """Show as much of the bar's text as fits."""
        self._show_extent()
        self._show_remark()

    @on(SuggestionList.Clicked)
    def _insert_clicked(self, message: SuggestionList.Clicked) -> None:
        message.stop()
        self.line.focus()
        self.line.action_take()

    def _show_remark(self) -> None:
        texts, tone = self._remark
        room = int(self.size.width * REMARK) - 1
        text = next((text for text in texts if cell_len(text) <= room), texts[-1] if texts else "")
        self.query_one("#remark", SteadyText).update(Content.styled(text, STYLES[tone]))

    def _show_extent(self) -> None:
        if self._extent is None:
            return
        room = self.size.width - 2 * MARGIN - self.views.full_width - 1
        variants = self._extent.variants()
        text = next((text for text in variants if text.cell_length <= room), variants[-1])
        shown = self.query_one("#extent", SteadyText)
        shown.update(text, layout=False)
        self._extent_width = max(text.cell_length, min(self._extent_width, room))
        shown.styles.width = MARGIN + self._extent_width
