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
from textual.reactive import reactive, var
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
        return _width(self._contents(counts=True)) + len(NEW) + 1

    def parts(self) -> Iterator[Content]:
        room = self.size.width - len(NEW) - 1
        hidden = 0
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
            count = ""
            if tab.count is not None and (counts or is_current):
                count = f" {tab.count:,}"
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
        condition = self.condition
        status = (
            condition.statuses
            or condition.not_statuses
            or condition.active
            or condition.ended
            or condition.stuck
            or condition.followed
        )
        for action, name, is_set in (
            ("pick_values('status')", "status ▾", bool(status)),
            ("pick_values('repo')", "   repository ▾", bool(condition.repositories or condition.not_repositories)),
            ("pick_values('branch')", "   branch ▾", bool(condition.branches or condition.not_branches)),
            ("pick_dates", "   started ▾", bool(condition.since or condition.until)),
        ):
            yield clickable(Content.styled(name, STYLES["warn"] if is_set else QUIET), f"screen.{action}")


class SuggestionList(Widget):
    """The suggestions, one of which is chosen."""

    virtual_size = unscrolled_size()
    offers: reactive[tuple[Suggestion, ...]] = reactive((), layout=True)
    """Their text must be safe."""
    chosen: reactive[int] = reactive(0)

    class Clicked(Message):
        """A suggestion was clicked, and is the chosen one now."""

    def render(self) -> Content:
        width = max((cell_len(offer.insert) for offer in self.offers), default=0)
        lines = []
        for index, offer in enumerate(self.offers):
            ground = ""
            if index == self.chosen:
                ground = " on $block-cursor-blurred-background"
            name = (" ▸ " if ground else "   ", f"$accent{ground}"), (fit(offer.insert, width), f"$foreground{ground}")
            about = f"  {offer.about} " if offer.about else " ", f"$foreground 70%{ground}"
            lines.append(Content.assemble(*name, about))
        return Content("\n").join(lines)

    def on_click(self, event: events.Click) -> None:
        if event.y < len(self.offers):
            self.chosen = event.y
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

    def __init__(self, understand: FindSpans, suggestions: SuggestionList) -> None:
        hint = "/ search, or status:failed repo:acme/* since:7d"
        colours = QueryHighlighter(self, understand)
        super().__init__(placeholder=hint, compact=True, select_on_focus=False, highlighter=colours)
        self._list = suggestions

    def validate_value(self, value: str) -> str:
        """Remove terminal control characters from typed or pasted text."""
        return safe_text(value, limit=1_000)

    def set_line(self, line: str, cursor: int | None = None) -> None:
        """Replace the query without announcing a change."""
        with self.prevent(Input.Changed):
            self.value = line
        self.cursor_position = len(self.value) if cursor is None else cursor

    def action_leave(self, is_cleared: bool = False) -> None:  # noqa: FBT002 # as Textual calls it
        self.post_message(self.Left(is_cleared))

    def action_take(self) -> None:
        """Insert the chosen suggestion; without one leave the line."""
        if not self._list.offers:
            self.action_leave()
            return
        offer = self._list.offers[self._list.chosen]
        before = self.value[: offer.start] + offer.insert
        text_after = self.value[offer.end :]
        # After a value the next term begins; after a key its value is still missing.
        if not before.endswith(":") and not text_after:
            before += " "
        self.value = before + text_after
        self.cursor_position = len(before)

    def action_choose(self, step: int) -> None:
        """Choose another suggestion, wrapping around the ends."""
        if count := len(self._list.offers):
            self._list.chosen = (self._list.chosen + step) % count

    def on_blur(self) -> None:
        self.cursor_position = 0


@dataclass(eq=False)
class QueryHighlighter(Highlighter):
    """Colours the parts of a query as the style sheet says."""

    _widget: Input
    _understand: FindSpans

    def highlight(self, text: Text) -> None:
        for start, end, kind in self._understand(text.plain):
            # Without its background: the input's own shows, focused or not.
            style = self._widget.get_component_rich_style(f"search--{kind}")
            text.stylize(Style(color=style.color, bold=style.bold, underline=style.underline), start, end)


class FilterBar(Vertical):
    """Two lines, and the suggestions below them while the user types."""

    extent: var[ExtentLine | None] = var(None, init=False)
    """How many runs are shown, of how many, and the missing part."""
    remark: var[tuple[tuple[SafeText, ...], Tone]] = var(((), "quiet"), init=False)
    """Texts of which the first that fits replaces the facets; without texts, the facets are shown."""

    def __init__(self, understand: FindSpans) -> None:
        super().__init__()
        self._suggestions = SuggestionList()
        self._suggestions.display = False
        self.line, self.views = SearchInput(understand, self._suggestions), ViewBar()
        self.facets = FacetBar()
        self._extent_width = 0
        """Cells of the extent: kept while its words get fewer, so that a letter does not lay out the screen."""

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self.views
            yield SteadyText(id="extent")
        with Horizontal():
            yield self.line
            yield self.facets
            yield SteadyText(id="remark")
        yield self._suggestions

    def on_mount(self) -> None:
        for name in ("tabs", "current", "is_changed"):
            self.watch(self.views, name, self.watch_extent, init=False)

    def offer(self, offers: tuple[Suggestion, ...]) -> None:
        """Show suggestions for the query, and choose the first."""
        self._suggestions.offers = offers[:8]
        self._suggestions.chosen = 0
        self._suggestions.display = bool(offers)

    def on_resize(self) -> None:
        self.watch_extent()
        self.watch_remark()

    @on(SuggestionList.Clicked)
    def insert_suggestion(self, message: SuggestionList.Clicked) -> None:
        message.stop()
        self.line.focus()
        self.line.action_take()

    def watch_remark(self) -> None:
        texts, tone = self.remark
        room = int(self.size.width * REMARK) - 1
        text = next((text for text in texts if cell_len(text) <= room), texts[-1] if texts else "")
        self.query_one("#remark", SteadyText).update(Content.styled(text, STYLES[tone]))
        self.set_class(bool(texts), "-remark")

    def watch_extent(self) -> None:
        if self.extent is None:
            return
        room = self.size.width - 2 * MARGIN - self.views.full_width - 1
        variants = self.extent.variants()
        text = next((text for text in variants if text.cell_length <= room), variants[-1])
        field = self.query_one("#extent", SteadyText)
        field.update(text, layout=False)
        self._extent_width = max(text.cell_length, min(self._extent_width, room))
        field.styles.width = MARGIN + self._extent_width
