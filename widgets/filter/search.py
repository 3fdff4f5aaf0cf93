"""The query line, painted as it is understood, and the completions offered below it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from app.text import SafeText, safe_text
from widgets.cells import fit

MOST: Final = 8
"""Suggestions shown."""
LONGEST: Final = 1_000
"""The most characters in a query."""
KINDS: Final = ("sign", "key", "value", "word", "problem")

StyledSpan = tuple[int, int, str]
"""A part of the query: its first character, the one behind its last, and its kind, one of `KINDS`."""
FindSpans = Callable[[str], Sequence[StyledSpan]]


@dataclass(frozen=True, slots=True)
class SearchSuggestion:
    """One way to continue the query."""

    start: int
    """Index of the first character that it replaces."""
    end: int
    """Index behind the last one."""
    insert: SafeText
    about: str = ""

    def applied(self, line: str) -> tuple[str, int]:
        """The line with the suggestion inserted, and the new cursor position."""
        return line[: self.start] + self.insert + line[self.end :], self.start + len(self.insert)


class SuggestionList(Widget):
    """The suggestions; the first one is chosen at first."""

    @dataclass
    class Clicked(Message):
        """A suggestion was clicked."""

        offer: SearchSuggestion

    def __init__(self) -> None:
        super().__init__()
        self._offers: tuple[SearchSuggestion, ...] = ()
        self._chosen = 0
        self.display = False

    @property
    def chosen(self) -> SearchSuggestion | None:
        """The suggestion that tab inserts; None: there is none."""
        return self._offers[self._chosen] if self._offers else None

    def show(self, offers: tuple[SearchSuggestion, ...]) -> None:
        """Show the suggestions."""
        self._offers, self._chosen = offers[:MOST], 0
        self.display = bool(self._offers)
        self.refresh(layout=True)

    def choose(self, step: int) -> None:
        """Choose another one, wrapping around the ends."""
        if self._offers:
            self._chosen = (self._chosen + step) % len(self._offers)
            self.refresh()

    def render(self) -> Content:
        """One line each."""
        width = max((cell_len(offer.insert) for offer in self._offers), default=0)
        return Content("\n").join(self._line(index, width) for index in range(len(self._offers)))

    def on_click(self, event: events.Click) -> None:
        """Announce the clicked suggestion."""
        if event.y < len(self._offers):
            self.post_message(self.Clicked(self._offers[event.y]))

    def _line(self, index: int, width: int) -> Content:
        offer = self._offers[index]
        here = " on $block-cursor-blurred-background" if index == self._chosen else ""
        return Content.assemble(
            (" ▸ " if here else "   ", f"$accent{here}"),
            (fit(offer.insert, width), f"$foreground{here}"),
            (f"  {offer.about} " if offer.about else " ", f"$foreground 70%{here}"),
        )


class SearchInput(Input):
    """The query line; escape clears it, enter goes to the rows, tab inserts the suggestion."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"search--{kind}" for kind in KINDS}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "leave", "to the runs", key_display="enter", id="search.leave"),
        Binding("tab", "take", "complete", key_display="tab", id="search.take"),
        Binding("down", "choose(1)", "next suggestion", show=False, id="search.next"),
        Binding("up", "choose(-1)", "previous suggestion", show=False, id="search.previous"),
        Binding("escape", "clear", "clear", id="search.clear"),
    ]

    @dataclass
    class Left(Message):
        """The focus goes back to the rows."""

    @dataclass
    class Cleared(Message):
        """The query was cleared; the focus goes back to the rows."""

    @dataclass
    class SuggestionAccepted(Message):
        """The chosen suggestion was accepted."""

    @dataclass
    class SuggestionMoved(Message):
        """Another suggestion was requested."""

        step: int

    def __init__(self, understand: FindSpans) -> None:
        super().__init__(
            placeholder="/ search, or status:failed repo:acme/* since:7d",
            compact=True,
            select_on_focus=False,
            highlighter=_QueryHighlighter(self, understand),
        )

    def validate_value(self, value: str) -> str:
        """Remove terminal control characters from typed or pasted text."""
        return safe_text(value, limit=LONGEST)

    def put(self, line: str, cursor: int | None = None) -> None:
        """Replace the query without announcing a change."""
        with self.prevent(Input.Changed):
            self.value = line
        self.cursor_position = len(self.value) if cursor is None else cursor

    def action_leave(self) -> None:
        """Leave the query line."""
        self.post_message(self.Left())

    def action_clear(self) -> None:
        """Clear the query and leave the line."""
        self.post_message(self.Cleared())

    def action_take(self) -> None:
        """Insert the chosen suggestion."""
        self.post_message(self.SuggestionAccepted())

    def action_choose(self, step: int) -> None:
        """Choose another suggestion."""
        self.post_message(self.SuggestionMoved(step))

    def on_blur(self, event: events.Blur) -> None:
        """Scroll the query back to its beginning."""
        del event
        self.cursor_position = 0


class _QueryHighlighter(Highlighter):
    """Colours the parts of a query as the style sheet says."""

    def __init__(self, widget: Input, understand: FindSpans) -> None:
        self._widget = widget
        self._understand = understand

    def highlight(self, text: Text) -> None:
        """Colour the parts."""
        for start, end, kind in self._understand(text.plain):
            text.stylize(self._style(kind), start, end)

    def _style(self, kind: str) -> Style:
        # Without its background: the input's own shows, focused or not.
        style = self._widget.get_component_rich_style(f"search--{kind}")
        return Style(color=style.color, bold=style.bold, underline=style.underline)
