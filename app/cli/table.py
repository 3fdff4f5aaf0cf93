"""Tables of foreign text: aligned, as wide as the terminal and no wider, with nothing in them that a terminal obeys."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from unicodedata import combining, east_asian_width

from app.text import safe_text

T = TypeVar("T")

GAP: Final = "  "
MIN_FLEXIBLE: Final = 8
"""Cells below which a flexible column is not shrunk: less says nothing."""
CELL_LIMIT: Final = 200
"""Characters of one cell that are looked at."""
TONES: Final = {"good": "32", "bad": "31", "busy": "36", "warn": "33", "dim": "2"}
"""SGR codes; meaning never rests on them alone."""


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


def lines(columns: Sequence[Column[T]], items: Sequence[T], *, width: int | None, colour: bool) -> Iterator[str]:
    """The table's lines, title first.

    Args:
        columns: What to show of each item.
        items: One for each line.
        width: Cells available. None: as wide as it gets.
        colour: Whether tones are shown.
    """
    cells = [[str(safe_text(column.text(item), limit=CELL_LIMIT)) for column in columns] for item in items]
    titles = [column.title for column in columns]
    widths = _widths(columns, [titles, *cells], width)
    yield _line(titles, widths)
    for item, row in zip(items, cells, strict=True):
        tones = [column.tone(item) if column.tone and colour else "" for column in columns]
        yield _line(row, widths, tones)


def fields(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Labelled values, one a line, the values aligned."""
    label_width = max((len(label) for label, _ in pairs), default=0)
    for label, value in pairs:
        yield f"{label:<{label_width}}{GAP}{safe_text(value, limit=2000)}"


def cell_width(text: str) -> int:
    """How many terminal cells the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(c) for c in text)


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis where something was left out."""
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


def _widths(columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], available: int | None) -> list[int]:
    widths = [max(cell_width(row[i]) for row in rows) for i in range(len(columns))]
    if available is None:
        return widths
    excess = sum(widths) + len(GAP) * (len(columns) - 1) - available
    while excess > 0:
        candidates = [i for i, column in enumerate(columns) if column.flexible and widths[i] > _least(column)]
        if not candidates:
            break
        # The widest gives way first, so that no column is crushed while another has room.
        widths[max(candidates, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths


def _least(column: Column[T]) -> int:
    return max(MIN_FLEXIBLE, cell_width(column.title))


def _line(row: Sequence[str], widths: Sequence[int], tones: Sequence[str] | None = None) -> str:
    parts = []
    for i, (text, width) in enumerate(zip(row, widths, strict=True)):
        short = shorten(text, width)
        padding = "" if i == len(widths) - 1 else " " * (width - cell_width(short))
        code = TONES.get(tones[i]) if tones else None
        parts.append((f"\x1b[{code}m{short}\x1b[0m" if code else short) + padding)
    return GAP.join(parts).rstrip()
