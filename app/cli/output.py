"""The only printer: facts on stdout in the format asked for, everything else on stderr."""

import csv
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from typing import Final, Generic, TextIO, TypeVar
from unicodedata import combining, east_asian_width

from app.cli.exits import Failure
from app.streams import printing
from app.text import csv_cell, json_escaped, safe_text

T = TypeVar("T")
Document = Mapping[str, object]
"""One JSON object: what `--json` prints."""

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


def lines(columns: Sequence[Column[T]], items: Sequence[T], *, width: int | None, colour: bool) -> Iterator[str]:
    """The table's lines, title first, within `width` cells; None: unlimited."""
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


def _widths(columns: Sequence[Column[T]], rows: Sequence[Sequence[str]], available: int | None) -> list[int]:
    widths = [max(cell_width(row[i]) for row in rows) for i in range(len(columns))]
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


class Format(StrEnum):
    """How facts are printed."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"

    @property
    def is_json(self) -> bool:
        """Whether errors, too, are JSON on stdout."""
        return self in {Format.JSON, Format.NDJSON}


@dataclass(frozen=True, slots=True)
class Output:
    """Prints the facts that commands report."""

    format: Format
    stdout: TextIO
    stderr: TextIO
    width: int | None
    """Width in cells. None: stdout is not a terminal, nothing is shortened."""
    colour: bool

    @classmethod
    def standard(cls, format: Format) -> "Output":  # noqa: A002 — the word of the option
        """Print to the process's own streams."""
        is_terminal = sys.stdout.isatty()
        colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if is_terminal else None
        return cls(format, sys.stdout, sys.stderr, width, colour)

    def listing(
        self,
        key: str,
        entries: Sequence[Document],
        items: Sequence[T],
        columns: Sequence[Column[T]],
        *,
        more: Document | None = None,
        empty: str = "",
    ) -> None:
        """Print many items of one kind; the document is `{key: entries, "count": n, …more}`.

        Each entry is a JSON object, and one line of NDJSON. The items are the same, in the same order, for the columns
        of the table and of CSV; `empty` is the note when there are none.
        """
        match self.format:
            case Format.JSON:
                document = {key: entries, "count": len(entries), **(more or {})}
                self._print(self._json(document, indent=2))
            case Format.NDJSON:
                for entry in entries:
                    self._print(self._json(entry))
            case Format.CSV:
                self._csv(columns, items)
            case Format.TABLE if items:
                for line in lines(columns, items, width=self.width, colour=self.colour):
                    self._print(line)
            case Format.TABLE:
                self.note(empty)

    def record(self, document: Document, pairs: Sequence[tuple[str, str]]) -> None:
        """Print one record; in CSV one row under the fields' labels."""
        match self.format:
            case Format.JSON:
                self._print(self._json(document, indent=2))
            case Format.NDJSON:
                self._print(self._json(document))
            case Format.CSV:
                columns = [_constant(label, value) for label, value in pairs]
                self._csv(columns, [None])
            case Format.TABLE:
                for line in fields(pairs):
                    self._print(line)

    def text(self, line: str) -> None:
        """Print a line of text in table format; nothing in the other formats."""
        if self.format is Format.TABLE:
            self._print(str(safe_text(line, limit=4000)))

    def note(self, line: str) -> None:
        """Print a remark on stderr."""
        if line:
            print(safe_text(line, limit=4000), file=self.stderr, flush=True)

    def failure(self, failure: Failure, beside: Document | None = None) -> None:
        """Print an error: a JSON format prints it on stdout, with further fields; the others a sentence on stderr."""
        if self.format.is_json:
            indent = 2 if self.format is Format.JSON else None
            self._print(self._json({**(beside or {}), "error": failure.as_json()}, indent=indent))
        else:
            self.note(f"runwarden: {failure.message}")

    def flush(self) -> None:
        """Flush stdout."""
        with printing():
            self.stdout.flush()

    def _csv(self, columns: Sequence[Column[T]], items: Sequence[T]) -> None:
        shown = [column for column in columns if column.name]
        buffer = StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.name for column in shown])
        for item in items:
            writer.writerow([csv_cell((column.value or column.text)(item)) for column in shown])
        self._write(buffer.getvalue())

    def _json(self, value: object, *, indent: int | None = None) -> str:
        ascii_only = (self.stdout.encoding or "").lower().replace("-", "") != "utf8"
        return json_escaped(json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, indent=indent))

    def _print(self, line: str) -> None:
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        with printing():
            self.stdout.write(text)


def _constant(label: str, value: str) -> Column[None]:
    return Column(label, lambda _: value, name=label)
