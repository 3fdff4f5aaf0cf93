"""Tables for a terminal or a pipe, printed part by part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from unicodedata import combining, east_asian_width

from app.text import safe_text

T = TypeVar("T")

GAP: Final = "  "
MIN_FLEXIBLE: Final = 8
"""Minimum width of a flexible column, in cells."""
CELL_LIMIT: Final = 200
"""Characters of one cell; the rest is cut."""
TONES: Final = {"good": "32", "bad": "31", "busy": "36", "warn": "33", "dim": "2"}
"""SGR codes; colour is never the only sign."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column, for people and for CSV."""

    title: str
    text: Callable[[T], str]
    """The cell as people read it."""
    name: str = ""
    """The column's name in CSV; empty: not in CSV."""
    value: Callable[[T], object] | None = None
    """The cell in CSV, None being empty. None: the same as `text`."""
    flexible: bool = False
    """Whether the column may be shortened to fit."""
    tone: Callable[[T], str] | None = None
    """A key of `TONES`, or an empty string."""


@dataclass(slots=True)
class Table(Generic[T]):
    """A table that is printed part by part; its columns only ever get wider."""

    columns: Sequence[Column[T]]
    width: int | None
    """Cells in a line. None: unlimited."""
    colour: bool
    _needed: list[int] = field(default_factory=list)
    """The width of each column so far; empty: the title was not printed."""

    def lines(self, items: Sequence[T]) -> Iterator[str]:
        """The lines of the next items; the title comes before the first items of all."""
        titles = [column.title for column in self.columns]
        needed = self._needed or [cell_width(title) for title in titles]
        is_first = not self._needed
        cells = [[str(safe_text(column.text(item), limit=CELL_LIMIT)) for column in self.columns] for item in items]
        for row in cells:
            needed = [max(width, cell_width(text)) for width, text in zip(needed, row, strict=True)]
        self._needed = needed
        widths = _fitted(self.columns, needed, self.width)
        if is_first:
            yield _line(titles, widths)
        for item, row in zip(items, cells, strict=True):
            tones = [column.tone(item) if column.tone and self.colour else "" for column in self.columns]
            yield _line(row, widths, tones)


def cell_width(text: str) -> int:
    """Width of the text in terminal cells."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells, cut with an ellipsis."""
    if cell_width(text) <= width:
        return text
    kept, used = [], 0
    for c in text:
        used += _char_width(c)
        if used > width - 1:
            break
        kept.append(c)
    return "".join(kept) + "…"


def _char_width(c: str) -> int:
    if combining(c):
        return 0
    return 2 if east_asian_width(c) in "WF" else 1


def _fitted(columns: Sequence[Column[T]], needed: Sequence[int], available: int | None) -> list[int]:
    widths = list(needed)
    if available is None:
        return widths
    least = [max(MIN_FLEXIBLE, cell_width(column.title)) for column in columns]
    excess = sum(widths) + len(GAP) * (len(columns) - 1) - available
    while excess > 0:
        candidates = [i for i, column in enumerate(columns) if column.flexible and widths[i] > least[i]]
        if not candidates:
            break
        # Shrink the widest first, so that no column is crushed while another has room.
        widths[max(candidates, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths


def _line(row: Sequence[str], widths: Sequence[int], tones: Sequence[str] | None = None) -> str:
    parts = []
    for i, (text, width) in enumerate(zip(row, widths, strict=True)):
        short = shorten(text, width)
        padding = "" if i == len(widths) - 1 else " " * (width - cell_width(short))
        code = TONES.get(tones[i]) if tones else None
        parts.append((f"\x1b[{code}m{short}\x1b[0m" if code else short) + padding)
    return GAP.join(parts).rstrip()
