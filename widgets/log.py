"""A log of any size: lines are requested as they come into view."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from re import Pattern
from typing import ClassVar, Final, Literal, Protocol

from rich.ansi import AnsiDecoder
from rich.color import ColorSystem
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from widgets.text_view import LONGEST, TextPiece, TextView, safe_line

ERROR: Final = re.compile(rb"(?i)(?:\b|(?<=[0-9;\[]m))(?:error|fatal|failed|failure|exception|traceback|panic)\b")
GUTTER: Final = 2
"""Cells of the mark before a line."""
NEAR: Final = 100
"""Lines from the end of the held ones at which more are requested."""
_SGR: Final = re.compile(r"\x1b\[([0-9;:]{0,64})m")
_TONES: Final = ("quiet", "bad", "good", "warn", "busy", "wait", "function", "plain")
"""The theme's colours for a terminal's eight, from black to white: legible on any background."""
Direction = Literal["first", "earlier", "later", "last"]


class LogLines(Protocol):
    """The held lines of a log."""

    @property
    def count(self) -> int:
        """The number of held lines."""

    def line(self, row: int) -> bytes:
        """A line without its line break; a very long one is cut."""

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """The next line that matches."""


class LogView(TextView):
    """Draws a log; at its last line it follows what is added."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("exclamation_mark", "error", "next error", key_display="!", id="log.error"),
        Binding("end,G", "last", "to the end", tooltip="And follow new lines", id="table.last"),
    ]

    @dataclass
    class MoreRequested(Message):
        """Lines come into view that are not held."""

        where: Direction

    @dataclass
    class ErrorRequested(Message):
        """The next line with an error was requested."""

    def __init__(self, lines: LogLines) -> None:
        super().__init__()
        self._lines = lines
        self._about: Sequence[TextPiece] = ()

    @property
    def follows(self) -> bool:
        """Whether new lines scroll into view."""
        return self._cursor >= self.total - 1

    def tell(self, about: Sequence[TextPiece]) -> None:
        """Show a remark above the lines."""
        if about != self._about:
            self._about = about
            self.repaint_header()

    def changed(self, *, before: int = 0, follow: bool = False) -> None:
        """Take added lines; `before` of them precede the lines held so far."""
        top = self.scroll_offset.y
        self.resize_to(self._lines.count)
        if before:
            self.scroll_rows_to(top + before)
            self._cursor = min(self._cursor + before, self.total - 1)
        elif follow and self.total:
            self.put_cursor(self.total - 1)

    def rows_came_into_view(self) -> None:
        """Ask for more near either end."""
        if not self.total:
            return
        if self.visible_rows.start < NEAR:
            self.post_message(self.MoreRequested("earlier"))
        if self.visible_rows.stop > self.total - NEAR:
            self.post_message(self.MoreRequested("later"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable keys without effect."""
        return bool(self.total) if action in {"error", "last"} else super().check_action(action, parameters)

    def action_first(self) -> None:
        """Go to the log's first line."""
        super().action_first()
        self.post_message(self.MoreRequested("first"))

    def action_last(self) -> None:
        """Go to the log's last line, and follow."""
        super().action_last()
        self.post_message(self.MoreRequested("last"))

    def action_error(self) -> None:
        """Go to the next line with an error."""
        self.post_message(self.ErrorRequested())

    def head(self) -> Sequence[TextPiece]:
        """The remark about the log."""
        return self._about

    def draw(self, index: int, width: int, ground: str) -> Strip:
        """A line, with a mark if it holds an error."""
        raw = self._lines.line(index)
        mark = TextPiece("✗ ", "bad") if ERROR.search(raw[:LONGEST]) else TextPiece(" " * GUTTER)
        text = self.strip(self.lit(log_pieces(raw)), max(1, width - GUTTER), ground, self._x)
        return Strip.join([self.strip([mark], GUTTER, ground), text])

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """The next held line that matches."""
        return self._lines.find(pattern, begin, step)


def log_pieces(raw: bytes) -> list[TextPiece]:
    """A line of a log: its colours, its last state if it was overwritten, everything else visible."""
    text = raw.decode("utf-8", "replace").rstrip("\r")
    *before, last = [part for part in text.split("\r") if part] or [""]
    pieces, tone, decoder = [], "plain", AnsiDecoder()
    for number, part in enumerate(_SGR.split(last[: LONGEST + 1])):
        if number % 2:
            # Hidden and blinking text, and backgrounds, are left out.
            list(decoder.decode(f"\x1b[{part.replace(':', ';')}m"))
            style = decoder.style
            colour = None if style.color is None else style.color.downgrade(ColorSystem.STANDARD).number
            tone = "strong" if style.bold else "quiet" if style.dim else "plain"
            tone = tone if colour is None else _TONES[colour % len(_TONES)]
        elif part:
            pieces.append(TextPiece(safe_line(part), tone))
    return [*pieces, TextPiece(f"  ↻ {len(before):,} earlier", "quiet")] if before else pieces
