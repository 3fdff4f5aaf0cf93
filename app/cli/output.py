"""The only printer: facts on stdout in the requested format, everything else and the progress on stderr."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TextIO, TypeVar
from unicodedata import combining, east_asian_width

from msgspec import Struct

from app.cli import Format
from app.cli.exits import CommandFailedError
from app.engine.events import BackfillMoved, Event
from app.engine.text import csv_cell, json_escaped, safe_text
from app.engine.times import rfc3339, span
from app.start.streams import printing, remarking

if TYPE_CHECKING:
    from app.engine.engine import Engine

T = TypeVar("T")

GAP: Final = "  "
MIN_FLEXIBLE: Final = 8
"""Minimum width of a flexible column, in cells."""
CELL_LIMIT: Final = 200
"""Characters of one cell; the rest is cut."""
TABLE_ROWS: Final = 1_000
"""Rows that are held before a table begins, so that its columns fit their widest cell."""
TONES: Final = {"good": "32", "bad": "31", "busy": "36", "wait": "33", "warn": "33", "dim": "2"}
"""SGR codes; colour is never the only sign."""
BAR_CELLS: Final = 24
Document = Mapping[str, object]
"""One JSON object, as `--json` prints it."""


class Column(NamedTuple, Generic[T]):
    """One column, for tables and for CSV."""

    title: str
    text: Callable[[T], str] | None = None
    """The cell in a table, or None if the item is a document and this is its field `name`."""
    name: str = ""
    """The column's name in CSV, or empty if it is not in CSV."""
    value: Callable[[T], object] | None = None
    """The cell in CSV, None being empty. None: the document's field or, without one, the text."""
    flexible: bool = False
    """Whether the column may be shortened to fit."""
    tone: Callable[[T], str] | None = None
    """A key of `TONES`, or an empty string."""

    def cell(self, item: T) -> str:
        if self.text is not None:
            return self.text(item)
        value = item[self.name] if isinstance(item, Mapping) else None
        return "" if value is None else str(value)

    def csv(self, item: T) -> object:
        if self.value is not None:
            return csv_cell(self.value(item))
        return csv_cell(item[self.name] if isinstance(item, Mapping) and self.name in item else self.cell(item))


class Table(Struct, Generic[T], eq=False):
    """A table that is printed part by part; its columns only ever get wider."""

    columns: Sequence[Column[T]]
    width: int | None
    """Cells in a line, or None for no limit."""
    colour: bool = False
    _needed: list[int] = []
    """The width of each column so far, or empty if the title was not printed."""

    def lines(self, items: Sequence[T]) -> Iterator[str]:
        """The lines of the next items; the title comes before the first items of all."""
        title_widths = [cell_width(column.title) for column in self.columns]
        rows = [[str(safe_text(column.cell(item), limit=CELL_LIMIT)) for column in self.columns] for item in items]
        is_first = not self._needed
        needed = [self._needed or title_widths, *(map(cell_width, row) for row in rows)]
        self._needed = [max(widths) for widths in zip(*needed, strict=True)]
        widths = [*self._needed]
        least = [max(MIN_FLEXIBLE, width) for width in title_widths]
        while self.width is not None and sum(widths) + len(GAP) * (len(widths) - 1) > self.width:
            candidates = [i for i, column in enumerate(self.columns) if column.flexible and widths[i] > least[i]]
            if not candidates:
                break
            # Shrink the widest first, so that no column is crushed while another has room.
            widths[max(candidates, key=widths.__getitem__)] -= 1
        if is_first:
            yield _line([column.title for column in self.columns], widths, [""] * len(widths))
        for item, row in zip(items, rows, strict=True):
            tones = [column.tone(item) if column.tone and self.colour else "" for column in self.columns]
            yield _line(row, widths, tones)


def cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(1 + (east_asian_width(c) in "WF") for c in text if not combining(c))


def shorten(text: str, width: int) -> str:
    """The text in at most `width` cells, cut with an ellipsis."""
    if cell_width(text) <= width:
        return text
    start, used = "", 0
    for c in text:
        used += cell_width(c)
        if used > width - 1:
            break
        start += c
    return f"{start}…"


def _line(row: Sequence[str], widths: Sequence[int], tones: Sequence[str]) -> str:
    parts = []
    for i, (text, width) in enumerate(zip(row, widths, strict=True)):
        short = shorten(text, width)
        code = TONES.get(tones[i])
        parts.append((f"\x1b[{code}m{short}\x1b[0m" if code else short) + " " * (width - cell_width(short)))
    return GAP.join(parts).rstrip()


def facts(item: object, names: str) -> dict[str, object]:
    """The named attributes of an object as JSON: times in RFC 3339, tuples as lists."""
    values: dict[str, object] = {}
    for name in names.split():
        value = getattr(item, name)
        if isinstance(value, datetime):
            value = rfc3339(value)
        elif isinstance(value, tuple):
            value = [*value]
        values[name] = value
    return values


class Output(NamedTuple):
    """Prints the facts that commands report."""

    format: Format
    stdout: TextIO
    stderr: TextIO
    width: int | None
    """Width in cells, or None if stdout is not a terminal: nothing is shortened then."""
    colour: bool

    def listing(
        self,
        key: str,
        entries: Sequence[Document],
        columns: Sequence[Column[T]],
        items: Sequence[T] | None = None,
        *,
        more: Document | None = None,
        empty: str = "",
    ) -> None:
        """Print many items of one kind at once, see `Rows`."""
        rows = Rows(self, key, columns)
        rows.add(entries, items)
        rows.end(more, empty=empty)

    def record(self, document: Document, pairs: Sequence[tuple[str, str]]) -> None:
        """Print one record; in CSV one row under the fields' labels."""
        match self.format:
            case Format.JSON | Format.NDJSON:
                self.print(self.json(document))
            case Format.CSV:
                self.csv([[label for label, _ in pairs], [csv_cell(value) for _, value in pairs]])
            case Format.TABLE:
                width = max((len(label) for label, _ in pairs), default=0)
                for label, value in pairs:
                    self.print(f"{label:<{width}}{GAP}{safe_text(value, limit=2000)}")

    def text(self, line: str) -> None:
        """Print a line of text in table format; nothing in the other formats."""
        if self.format is Format.TABLE:
            self.print(str(safe_text(line, limit=4000)))

    def note(self, line: str) -> None:
        """Print a remark on stderr."""
        if line:
            with remarking(self.stderr):
                print(safe_text(line, limit=4000), file=self.stderr, flush=True)

    def failure(self, failure: CommandFailedError, beside: Document | None = None) -> None:
        """Print an error: a JSON format prints it on stdout, with further fields; the others a sentence on stderr."""
        if self.format.is_json:
            self.print(self.json({**(beside or {}), "error": failure.as_json()}))
        else:
            self.note(f"runwarden: {failure.message}")

    def flush(self) -> None:
        with printing():
            self.stdout.flush()

    def csv(self, rows: Iterable[Sequence[object]]) -> None:
        import csv

        buffer = StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        self.write(buffer.getvalue())

    def json(self, value: object) -> str:
        """A value as JSON, escaped for stdout's encoding and for a terminal; indented if one document is asked for."""
        ascii_only = (self.stdout.encoding or "").lower().replace("-", "") != "utf8"
        indent = 2 if self.format is Format.JSON else None
        return json_escaped(json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, indent=indent))

    def print(self, line: str) -> None:
        """Print a line unchanged."""
        self.write(f"{line}\n")

    def write(self, text: str | bytes) -> None:
        """Write text or bytes unchanged; raises `ReaderGoneError` or `NotPrintedError`."""
        with printing():
            if isinstance(text, str):
                self.stdout.write(text)
            else:
                self.stdout.flush()
                self.stdout.buffer.write(text)
                self.stdout.buffer.flush()


class Rows(Generic[T]):
    """Prints many items of one kind as they come; the JSON document is `{key: entries, "count": n, …more}`.

    Nothing is printed on stdout before the first item.
    """

    def __init__(self, output: Output, key: str, columns: Sequence[Column[T]]) -> None:
        self.output = output
        self.key = key
        self.columns = columns
        self.count = 0
        self._held: list[T] = []
        """Items that wait for the widths of a table's columns."""
        self._table = Table(columns, output.width, output.colour)

    def add(self, entries: Iterable[Document], items: Sequence[T] | None = None) -> None:
        """Print further items: each entry is a JSON object, and one line of NDJSON.

        The columns read `items`, the same things in the same order; by default the entries themselves.
        """
        if self.output.format.is_json:
            for entry in entries:
                # Only the indentation has line breaks: those within strings are escaped.
                text = self.output.json(entry).replace("\n", "\n    ")
                before = (",\n    " if self.count else f'{{\n  "{self.key}": [\n    ') + text
                self.output.write(before if self.output.format is Format.JSON else f"{text}\n")
                self.count += 1
            return
        rows: Sequence[T] = items if items is not None else [*entries]  # type: ignore[list-item]  # documents, then
        if self.output.format is Format.CSV:
            columns = [column for column in self.columns if column.name]
            titles = [] if self.count or not rows else [[column.name for column in columns]]
            self.output.csv([*titles, *([column.csv(item) for column in columns] for item in rows)])
        else:
            self._held += rows
            if len(self._held) >= TABLE_ROWS:
                self._print_held()
        self.count += len(rows)

    def end(self, more: Document | None = None, *, empty: str = "") -> None:
        """Print the end of the list; `empty` is the note below a table without items."""
        match self.output.format:
            case Format.JSON:
                ending = self.output.json({"count": self.count, **(more or {})}).removeprefix("{")
                self.output.print(("\n  ]," if self.count else f'{{\n  "{self.key}": [],') + ending)
            case Format.CSV if not self.count:
                self.output.csv([[column.name for column in self.columns if column.name]])
            case Format.TABLE if self.count:
                self._print_held()
            case Format.TABLE:
                self.output.note(empty)

    def failure(self, failure: CommandFailedError, beside: Document | None = None) -> None:
        """Print an error after the items before it: inside their JSON document, otherwise as `Output.failure` does."""
        if self.output.format is Format.JSON and self.count:
            self.end({**(beside or {}), "error": failure.as_json()})
            return
        if self._held:
            self._print_held()
        self.output.failure(failure, beside)

    def _print_held(self) -> None:
        for line in self._table.lines(self._held):
            self.output.print(line)
        self._held.clear()


@contextmanager
def progress_bar(engine: "Engine", title: str = "") -> Iterator["Bar"]:
    """Show the backfill's progress on stderr, or only a title while its length is not known."""
    bar = Bar(sys.stderr, title)
    stop = engine.events.subscribe(bar.update)
    try:
        yield bar
    finally:
        stop()
        bar.close()


class Bar:
    """A progress line on a terminal; prints nothing into a file, or without a stream."""

    def __init__(self, stream: TextIO | None, title: str = "") -> None:
        can_draw = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._stream = stream if can_draw else None
        self._title = title
        self._is_drawn = False

    def update(self, event: Event) -> None:
        """Show how far the backfill is: a bar where the end is known, the runs fetched, the time left."""
        if isinstance(event, BackfillMoved) and event.progress.phase == "running":
            progress = event.progress
            parts = [f"{progress.done_runs:,} runs"]
            if self._title:
                parts.insert(0, self._title)
            elif progress.estimated_runs:
                share = min(1.0, progress.done_runs / progress.estimated_runs)
                parts = [_cells(share), f"{parts[0]} of about {progress.estimated_runs:,}"]
            if progress.oldest is not None:
                parts.append(f"back to {progress.oldest:%Y-%m-%d %H:%M}")
            if progress.seconds_left is not None and not self._title:
                parts.append(f"{span(progress.seconds_left, pads_hours=False)} left")
            self.note(" · ".join(parts))

    def note(self, text: str) -> None:
        if self._stream is not None:
            self._is_drawn = True
            with remarking(self._stream):
                print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)

    def close(self) -> None:
        if self._is_drawn:
            self.note("")


class RowProgress(Bar):
    """Shows a batch's progress after each row: a bar on a terminal, one line per row elsewhere."""

    def __init__(self, output: Output, total: int, usual: str) -> None:
        super().__init__(output.stderr)
        self._output = output
        self._total = total
        self._usual = usual
        """The outcome that needs no mention."""
        self._outcomes: Counter[str] = Counter()

    def count_row(self, outcome: str, name: str) -> None:
        self._outcomes[outcome] += 1
        count = self._outcomes.total()
        if self._stream is None:
            self._output.note(f"{count}/{self._total}  {outcome:15}  {name}")
            return
        others = [f"{n:,} {word.replace('_', ' ')}" for word, n in self._outcomes.items() if word != self._usual]
        bar = _cells(count / self._total)
        self.note(" · ".join([bar, f"{count:,} of {self._total:,}", *others, safe_text(name, limit=60)]))


def _cells(share: float) -> str:
    filled = round(share * BAR_CELLS)
    return f"{'█' * filled}{'░' * (BAR_CELLS - filled)} {share:4.0%}"
