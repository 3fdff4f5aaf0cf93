"""A view of any number of lines of any length that builds only the visible part."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from re import Pattern
from typing import Any, ClassVar, Final, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widgets import Input

from app.engine.text import safe_text
from widgets.forms.inputs import ListSearch
from widgets.frame import notice_line
from widgets.kit import hidden
from widgets.kit.badges import STYLES, tone_css
from widgets.kit.cursor_view import HEADER, CursorView

MAX_LINE: Final = 4_000
TAB: Final = "    "


class TextPiece(NamedTuple):
    """A part of a line in one style."""

    text: str
    tone: str = "plain"
    ground: str = ""
    """The name of the part's background; empty: the line's background."""


def safe_line(text: str) -> str:
    return safe_text(
        text[:MAX_LINE].replace("\t", TAB) + ("…" if len(text) > MAX_LINE else ""), limit=MAX_LINE * len(TAB)
    )


def overlay(pieces: Iterable[TextPiece], spans: Sequence[tuple[int, int]], ground: str) -> list[TextPiece]:
    """The pieces with another background for these spans (start and end, in characters)."""
    result: list[TextPiece] = []
    begin = 0
    for piece in pieces:
        end = begin + len(piece.text)
        edges = {begin, end, *(edge for span in spans for edge in span if begin < edge < end)}
        for left, right in pairwise(sorted(edges)):
            is_lit = any(first <= left < last for first, last in spans)
            text = piece.text[left - begin : right - begin]
            result.append(TextPiece(text, piece.tone, ground if is_lit else piece.ground))
        begin = end
    return result


class TextView(CursorView):
    """Draws lines, scrolls sideways and highlights matches; a subclass makes the lines."""

    PARTS: Final = (
        *("header", "cursor", "resting", "match", "file", "added", "removed", "added-word", "removed-word", "code"),
        *("keyword", "string", "comment", "number", "function", "accent", "strong", *STYLES),
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"text-view--{part}" for part in PARTS}
    DEFAULT_CSS = Path(__file__).with_name("text_view.tcss").read_text("utf-8") + tone_css("TextView", "text-view")
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("right", "sideways(1)", "to the right", tooltip="Scroll long lines", id="text.right"),
        hidden("left", "sideways(-1)", "to the left", id="text.left"),
    ]

    sought: reactive[Pattern[str] | None] = reactive(None)
    """The matches of this pattern are highlighted."""

    def __init__(self) -> None:
        super().__init__()
        self._x = 0
        self._styles: dict[tuple[str, str], Style] = {}

    # Hooks for subclasses

    def head(self) -> Sequence[TextPiece]:
        """The line above the lines."""
        return ()

    def draw(self, index: int, width: int, ground: str) -> Strip:
        """One line, on this background unless it has its own."""
        raise NotImplementedError

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """The next line with a match, at or after this line (step 1) or before it (step -1), or None.

        Runs in a thread.
        """
        rows = range(begin, self.total) if step > 0 else range(min(begin, self.total) - 1, -1, -1)
        return next((row for row in rows if any(map(pattern.search, self.texts(row)))), None)

    def texts(self, row: int) -> Iterable[bytes]:
        """The text of a line that is searched."""
        raise NotImplementedError

    # Scrolling and selection

    def resize_to(self, total: int) -> None:
        self.total = total
        self.cursor = min(self.cursor, max(0, total - 1))
        self.virtual_size = Size(0, total + HEADER)
        self.refresh()

    def action_sideways(self, steps: int) -> None:
        """Scroll sideways, eight cells at once."""
        self._x = min(max(0, self._x + steps * 8), MAX_LINE)
        self.refresh()

    def on_mouse_scroll_right(self) -> None:
        self.action_sideways(1)

    def on_mouse_scroll_left(self) -> None:
        self.action_sideways(-1)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y < HEADER:
            return self.strip(self.head(), width)
        index = self.row_at(y - HEADER)
        if not self.total:
            text, tone, _ = notice_line(self.notice, y, width, self.size.height)
            return self.strip([TextPiece(text, tone)], width)
        if index >= self.total:
            return Strip.blank(width, self.rich_style)
        cursor = "cursor" if self.has_focus else "resting"
        return self.draw(index, width, cursor if index == self.cursor else "")

    def strip(self, pieces: Iterable[TextPiece], width: int, ground: str = "", x: int = 0) -> Strip:
        """The pieces starting at cell `x`, in exactly this many cells."""
        line = Strip([Segment(piece.text, self.style(piece.tone, piece.ground or ground)) for piece in pieces])
        return line.extend_cell_length(x + width, self.style("plain", ground)).crop(x, x + width)

    def pan(self, pieces: Iterable[TextPiece], width: int, ground: str = "") -> Strip:
        """The visible part of a line, with a mark at each end that was cut off."""
        pieces = tuple(pieces)
        strip = self.strip(pieces, width, ground, self._x)
        rest = cell_len("".join(piece.text for piece in pieces).rstrip()) - self._x
        if rest > width:
            strip = Strip.join([strip.crop(0, width - 1), self.strip([TextPiece("→", "accent")], 1, ground)])
        if self._x and rest > 0:
            strip = Strip.join([self.strip([TextPiece("←", "accent")], 1, ground), strip.crop(1, width)])
        return strip

    def lit(self, pieces: Sequence[TextPiece]) -> Sequence[TextPiece]:
        if self.sought is None:
            return pieces
        spans = [match.span() for match in self.sought.finditer("".join(piece.text for piece in pieces))]
        return overlay(pieces, spans, "match") if spans else pieces

    def style(self, tone: str, ground: str) -> Style:
        if (cached := self._styles.get((tone, ground))) is None:
            component_style = self.get_component_rich_style(f"text-view--{tone}")
            cached = self.rich_style + Style(
                color=component_style.color, bold=component_style.bold or None, italic=component_style.italic or None
            )
            if ground:
                behind = self.get_component_rich_style(f"text-view--{ground}")
                cached += behind if ground == "match" else Style(bgcolor=behind.bgcolor, bold=behind.bold or None)
            self._styles[tone, ground] = cached
        return cached


Earlier = Callable[[], Awaitable[int | None]]
"""Loads lines before the held ones and returns their number; None: there are none."""


class TextSearch(Vertical):
    """A view of lines below a search line, which is shown during a search."""

    DEFAULT_CSS = """
    TextSearch { height: 1fr; width: 1fr; }
    TextSearch > ListSearch { display: none; }
    TextSearch > ListSearch.-open { display: block; }
    TextSearch > ListSearch.-missed { color: $error; }
    """

    @dataclass
    class Missed(Message):
        """No match, or no further match."""

        text: str

    def __init__(self, view: TextView, earlier: Earlier | None = None) -> None:
        super().__init__()
        self.view = view
        self.none_of: Mapping[Pattern[bytes], str] = {}
        """The message if a pattern other than a typed one is not found."""
        self._line = ListSearch("Search: enter go to it, esc clear")
        self._earlier = earlier

    def compose(self) -> ComposeResult:
        yield self._line
        yield self.view

    def open(self) -> None:
        self._line.add_class("-open")
        self._line.focus()

    def step(self, step: int) -> None:
        if self._line.value:
            self.seek(_pattern(self._line.value), step)
        else:
            self.open()

    def seek(self, pattern: Pattern[bytes], step: int, *, here: bool = False) -> None:
        """Go to the next matching line; with `here`, the one under the cursor counts."""
        begin = self.view.cursor + (1 if step > 0 and not here else 0)
        work: Callable[..., Any] = partial(self._seek, pattern, begin, step, is_typed=here)
        self.screen.run_worker(work, exclusive=True, group="find")

    @on(Input.Changed)
    def search_text(self, event: Input.Changed) -> None:
        event.stop()
        text = event.value
        flags = re.IGNORECASE if text.islower() else re.NOFLAG
        self.view.sought = re.compile(re.escape(text), flags) if text else None
        if text:
            self.seek(_pattern(text), 1, here=True)

    @on(ListSearch.Left)
    def leave_search(self, event: ListSearch.Left) -> None:
        event.stop()
        self._line.set_class(bool(self._line.value), "-open")
        self.view.focus()

    async def _seek(self, pattern: Pattern[bytes], begin: int, step: int, *, is_typed: bool) -> None:
        view = self.view
        position = await asyncio.to_thread(view.find, pattern, begin, step)
        while position is None and self._earlier is not None and (added := await self._earlier()) is not None:
            if step < 0:  # When searching forwards, these lines come after the end.
                position = await asyncio.to_thread(view.find, pattern, added + 1, step)
        if position is None:
            edge = 0 if step > 0 else view.total
            position = await asyncio.to_thread(view.find, pattern, edge, step)
            if not is_typed:
                none = self.none_of.get(pattern, "Not found.")
                self.post_message(self.Missed(none if position is None else "Continued from the other end."))
        self._line.set_class(position is None, "-missed")
        if position is not None:
            view.put_cursor(position)


def _pattern(text: str) -> Pattern[bytes]:
    return re.compile(re.escape(text.encode("utf-8", "replace")), re.IGNORECASE if text.islower() else re.NOFLAG)
