"""A log: one stretch of it is held, and more is requested as its ends come into view."""

import re
import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from re import Pattern
from typing import ClassVar, Final

from msgspec import Struct, field
from rich.ansi import AnsiDecoder
from rich.color import ColorSystem
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from storage.records.results import LogChunk
from widgets.kit.cursor_view import HEADER
from widgets.kit.text_view import MAX_LINE, TextPiece, TextView, safe_line

FAILED_STEP: Final = re.compile(rb"(?m)^\x1b\[31m")
"""A step's first line, as `StepLines` colours one that failed."""
_TIME: Final = re.compile(rb"(\[?)(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
GUTTER: Final = 2
"""Cells of the mark before a line."""
NEAR: Final = 100
_SGR: Final = re.compile(r"\x1b\[([0-9;:]{0,64})m")
_TONES: Final = ("quiet", "bad", "good", "warn", "busy", "wait", "function", "plain")
"""The theme's colours for a terminal's eight, from black to white: legible on any background."""
BLOCK: Final = 256 * 1024
MAX_READ: Final = 16 * 1024
_END: Final = re.compile(b"\n")


class LogSpool(Struct, eq=False):
    """One contiguous stretch of a log, with the places of its line ends."""

    begin: int = 0
    """The offset in the log at which the part that is held begins."""
    end: int = 0
    _data: bytearray = bytearray()
    _first: int = 0
    """The position of the first byte held; positions differ from offsets, as other lines may replace the log's."""
    _ends: "array[int]" = field(default_factory=lambda: array("q"))
    """The places at which lines end."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the bytes, which a search reads in a thread."""

    @property
    def count(self) -> int:
        """The number of lines held; the first and the last may be partial."""
        return len(self._ends) + (bool(self._data) and self._data[-1:] != b"\n")

    def clear(self) -> None:
        with self._lock:
            self.begin = self.end = self._first = 0
            self._data, self._ends = bytearray(), array("q")

    def add_chunk(self, chunk: LogChunk, lines: bytes | None = None) -> int:
        """Append a piece, or replace everything if it does not join; return how many lines came before it.

        `lines` are held instead of those of the log.
        """
        data = chunk.data if lines is None else lines
        count = self.count
        holds_any = self.begin < self.end
        if holds_any and chunk.offset < self.begin <= chunk.next_offset:
            data = data[: self.begin - chunk.offset] if lines is None else data
            with self._lock:
                self._data[:0], self.begin = data, chunk.offset
                self._first -= len(data)
                self._ends = _line_ends(data, self._first) + self._ends
            return self.count - count
        if holds_any and chunk.offset != self.end:
            self.clear()
            holds_any = False
        with self._lock:
            self.begin = self.begin if holds_any else chunk.offset
            self.end = chunk.next_offset
            self._ends += _line_ends(data, self._first + len(self._data))
            self._data += data
        return 0

    def line(self, row: int) -> bytes:
        """A line without its break; of a very long one the beginning, or the last part if it was overwritten."""
        begin = self._start(row)
        end = self._ends[row] if row < len(self._ends) else self._last
        data = self._read(begin, min(end, begin + MAX_READ))
        if end - begin > MAX_READ and b"\r" in data:
            return self._read(end - MAX_READ, end)
        return data

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """The next matching line from here on (step 1), or before (step -1); None: no match."""
        at = self._start(begin) if begin < self.count else self._last
        while step > 0 and (data := self._read(at, at + BLOCK)):
            data = data[: data.rfind(b"\n") + 1] or data
            if match := pattern.search(data):
                return bisect_left(self._ends, at + match.start())
            at += len(data)
        while step < 0 and at > self._first:
            first = max(self._first, at - BLOCK)
            data = self._read(first, at)
            cut = data.find(b"\n") + 1 if first > self._first else 0
            cut = cut if cut < len(data) else 0
            if matches := list(pattern.finditer(data, cut)):
                return bisect_left(self._ends, first + matches[-1].start())
            at = first + cut
        return None

    @property
    def _last(self) -> int:
        return self._first + len(self._data)

    def _start(self, row: int) -> int:
        return self._ends[row - 1] + 1 if row > 0 else self._first

    def _read(self, begin: int, end: int) -> bytes:
        with self._lock:
            return bytes(self._data[max(0, begin - self._first) : max(0, end - self._first)])


def _line_ends(data: bytes, offset: int) -> "array[int]":
    return array("q", [offset + match.start() for match in _END.finditer(data)])


class LogView(TextView):
    """Draws a log; at its last line it follows new lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("backslash", "wrap", "wrap", tooltip="Wrap or cut long lines", id="log.wrap"),
        Binding("end,G", "last", "to the end", tooltip="Go to the end and follow new lines", id="table.last"),
    ]

    @dataclass
    class EarlierRequested(Message):
        """Lines before the first one held are about to come into view."""

        up_to_first: bool = False

    def __init__(self, lines: LogSpool) -> None:
        super().__init__()
        self._lines = lines
        self._about: Sequence[TextPiece] = ()
        self.label = 0
        """Cells of the label before each step's words; 0: the lines are not steps, so failures are not known."""
        self.is_raw = False
        """Whether the user wants no steps, and times in full."""
        self._wraps: bool | None = None
        """None: the user did not say."""
        self._part = 0
        """Which part of a wrapped line is drawn."""

    @property
    def wraps(self) -> bool:
        """Whether long lines are wrapped; at first, those of steps are."""
        return bool(self.label) if self._wraps is None else self._wraps

    @property
    def follows(self) -> bool:
        """Whether new lines scroll into view."""
        return self.cursor >= self.total - 1

    def set_remark(self, about: Sequence[TextPiece]) -> None:
        if about != self._about:
            self._about = about
            self.repaint_header()

    def show_added(self, *, before: int = 0, follow: bool = False) -> None:
        """Add lines; `before` of them precede the lines held so far."""
        top = self.scroll_offset.y
        self.resize_to(self._lines.count)
        if before:
            self.scroll_rows_to(top + before)
            self.cursor = min(self.cursor + before, self.total - 1)
        elif follow and self.total:
            self.put_cursor(self.total - 1)

    def rows_came_into_view(self) -> None:
        if self.total and self._lines.begin and self.visible_rows.start < NEAR:
            self.post_message(self.EarlierRequested())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in {"last", "wrap"}:
            return bool(self.total)
        return super().check_action(action, parameters)

    def action_first(self) -> None:
        super().action_first()
        if self._lines.begin:
            self.post_message(self.EarlierRequested(up_to_first=True))

    def head(self) -> Sequence[TextPiece]:
        return self._about

    def draw(self, index: int, width: int, ground: str) -> Strip:
        is_failed = self.label and not self._part and FAILED_STEP.match(self._lines.line(index))
        mark = TextPiece("✗ ", "bad") if is_failed else TextPiece(" " * GUTTER)
        room = max(1, width - GUTTER)
        if self.wraps:
            text = self.strip(self.lit(self._parts(index)[self._part]), room, ground)
        else:
            text = self.pan(self.lit(log_pieces(self._line(index))), room, ground)
        return Strip.join([self.strip([mark], GUTTER, ground), text])

    def _line(self, index: int) -> bytes:
        raw = self._lines.line(index)
        return raw if self.is_raw else short_time(raw)

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        return self._lines.find(pattern, begin, step)

    # Wrapped lines: a row is still a line, and takes as many lines of the view as it needs.

    def action_wrap(self) -> None:
        self._wraps = not self.wraps
        self._x = 0
        self._part = 0
        self.resize_to(self.total)
        self.put_cursor(self.cursor)

    def resize_to(self, total: int) -> None:
        super().resize_to(total)
        if self.wraps and total:
            self.virtual_size = Size(0, HEADER + self._top_above(total - 1) + super().page)

    def on_resize(self) -> None:
        if self.wraps:
            self.resize_to(self.total)
            self.put_cursor(self.cursor)

    def _parts(self, index: int) -> tuple[tuple[TextPiece, ...], ...]:
        width = self.scrollable_content_region.width - GUTTER
        return wrap_line(self._line(index), width, self.label)

    def _top_above(self, index: int) -> int:
        """The first visible row if this row is the last one that fits."""
        top = index
        room = super().page - len(self._parts(index))
        while top and (room := room - len(self._parts(top - 1))) >= 0:
            top -= 1
        return top

    def row_at(self, y: int) -> int:
        """The row at this line below the header; wrapped, also note which part of it that is."""
        if not self.wraps:
            return super().row_at(y)
        index = self.scroll_offset.y
        self._part = y
        while index < self.total and self._part >= (parts := len(self._parts(index))):
            index = index + 1
            self._part = self._part - parts
        return index

    @property
    def page(self) -> int:
        lines = super().page
        if self.wraps:
            return max(1, self.row_at(lines) - self.scroll_offset.y)
        return lines

    def put_cursor(self, index: int) -> None:
        """Put the cursor on a row, and scroll all of it into view."""
        super().put_cursor(index)
        if self.wraps and self.total:
            if self.scroll_offset.y < (top := self._top_above(self.cursor)):
                self.scroll_rows_to(top)
            self.refresh()


@lru_cache(maxsize=512)
def wrap_line(raw: bytes, width: int, indent: int) -> tuple[tuple[TextPiece, ...], ...]:
    """A line's pieces, wrapped between words for this many cells; all but the first line are indented."""
    line = Content.assemble(*((piece.text, piece.tone) for piece in log_pieces(raw)))
    label, *rest = [line[:indent], *line[indent:].wrap(max(2, width - indent))]
    parts = [label + rest[0], *(Content.assemble((" " * indent, "plain"), part) for part in rest[1:])]
    return tuple(
        tuple(TextPiece(part.plain[span.start : span.end], str(span.style)) for span in part.spans) for part in parts
    )


def short_time(raw: bytes) -> bytes:
    """A line with its leading date and time cut to the time, in local time if the line names its zone."""
    if (match := _TIME.match(raw)) is None:
        return raw
    time = match[2].decode()
    zone = (match[3] or b"").decode()
    try:
        short = f"{datetime.fromisoformat(time + zone).astimezone():%H:%M:%S}" if zone else time[11:]
    except (ValueError, OverflowError):
        return raw
    return match[1] + short.encode() + raw[match.end() :]


def log_pieces(raw: bytes) -> list[TextPiece]:
    """A line of a log in its colours; overwritten text is dropped, and controls are made visible."""
    text = raw.decode("utf-8", "replace").rstrip("\r")
    *before, last = [part for part in text.split("\r") if part] or [""]
    pieces = []
    tone = "plain"
    decoder = AnsiDecoder()
    for number, part in enumerate(_SGR.split(last[: MAX_LINE + 1])):
        if number % 2:
            # Hidden and blinking text, and backgrounds, are left out.
            list(decoder.decode(f"\x1b[{part.replace(':', ';')}m"))
            style = decoder.style
            colour = None
            if style.color is not None:
                colour = style.color.downgrade(ColorSystem.STANDARD).number
            if colour is not None:
                tone = _TONES[colour % len(_TONES)]
            elif style.bold:
                tone = "strong"
            else:
                tone = "quiet" if style.dim else "plain"
        elif part:
            pieces.append(TextPiece(safe_line(part), tone))
    if before:
        return [*pieces, TextPiece(f"  ↻ {len(before):,} earlier", "quiet")]
    return pieces
