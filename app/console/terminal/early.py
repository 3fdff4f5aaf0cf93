"""The earliest picture: cached rows on the terminal before the toolkit is imported, which then paints over them.

Where the table stands and in which colours is what the console itself painted the last time, on a terminal of the same
kind and size; on any other nothing is drawn early.
"""

import json
import os
import re
import signal
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from app.text import safe_text
from storage.records import RunRow, RunSort
from widgets.cells import fit
from widgets.runs.columns import ColumnChoice, Layout, lay_out
from widgets.runs.row_cells import Cell, row_cells, row_times

FILE: Final = "picture.json"
ALTERNATE_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
BACK: Final = "\x1b[?25h\x1b[?1049l"
HEADER: Final = 1
"""Lines of titles above the rows."""
_INK: Final = re.compile(r"(\x1b\[[0-9;]*m)*")
_KIND: Final = ("TERM", "COLORTERM", "NO_COLOR", "TERM_PROGRAM")
"""Variables that say which colours a terminal gets."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where the table was painted, on which terminal, and with which inks."""

    terminal: tuple[str, ...]
    """The terminal's kind, its columns and its lines."""
    theme: str
    x: int
    y: int
    width: int
    """Cells of the rows, without the scroll bar."""
    height: int
    inks: Mapping[str, str]
    """Escape sequences that set colours, by what is painted: `titles`, and each tone on `row.` and on `cursor.`."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn early."""

    header: str
    """The left part of the line at the top: which service, and how fresh its facts are."""
    rows: Sequence[RunRow]
    sort: RunSort
    columns: ColumnChoice
    now: datetime


def terminal_kind(size: tuple[int, int], env: Mapping[str, str]) -> tuple[str, ...]:
    """What two terminals have in common on which the same bytes make the same picture."""
    return (*(env.get(name, "") for name in _KIND), *map(str, size))


def remember(path: Path, canvas: Canvas) -> None:
    """Keeps a canvas for the next start; where it cannot be written there is no early picture then."""
    text = json.dumps(asdict(canvas))
    try:
        if not path.exists() or path.read_text("utf-8") != text:
            new = path.with_suffix(f".{os.getpid()}")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            new.replace(path)
    except OSError:
        return


def recall(path: Path, terminal: tuple[str, ...], theme: str) -> Canvas | None:
    """The canvas of this terminal and theme; None: it was another, or none."""
    try:
        known: dict[str, Any] = json.loads(path.read_text("utf-8"))
        canvas = Canvas(**known)
        if tuple(canvas.terminal) != terminal or canvas.theme != theme:
            return None
        # Only colours may come out of a file; anything else would be for the terminal to obey.
        sound = all(_INK.fullmatch(ink) for ink in canvas.inks.values())
        sizes = (canvas.x, canvas.y, canvas.width, canvas.height)
        return canvas if sound and all(isinstance(size, int) for size in sizes) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def drawn(canvas: Canvas, picture: Picture) -> str:
    """The picture as what a terminal is sent."""
    layout = lay_out(canvas.width, picture.columns.columns)
    lines = [f"\x1b[1;1H{_ink(canvas, 'row.plain')}{fit(picture.header, canvas.width)}"]
    lines.append(_at(canvas, 0) + _titles(canvas, layout, picture.sort))
    for index, row in enumerate(picture.rows[: max(0, canvas.height - HEADER)]):
        ground = "cursor" if index == 0 else "row"
        line = row_cells(row, layout, row_times(row, picture.now))
        lines.append(_at(canvas, HEADER + index) + _row(canvas, line, ground))
    return "".join((*lines, "\x1b[0m"))


@contextmanager
def on_terminal(picture: str) -> Iterator[list[Any]]:
    """Shows it on the terminal of stdout, which it gives back as it was unless somebody else took it over.

    Yields:
        The terminal's modes as they were before: whoever takes over has to restore these.
    """
    modes = termios.tcgetattr(sys.stdin.fileno())
    quiet = [*modes[:3], modes[3] & ~(termios.ECHO | termios.ICANON), *modes[4:]]
    handlers = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        # Keys that are pressed meanwhile wait to be read, and leave no trace on the picture.
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)
        _write(ALTERNATE_SCREEN + picture)
        yield modes
    except BaseException:
        _write(BACK)
        raise
    finally:
        # A terminal that is gone has no modes.
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _at(canvas: Canvas, line: int) -> str:
    return f"\x1b[{canvas.y + line + 1};{canvas.x + 1}H"


def _ink(canvas: Canvas, name: str) -> str:
    return f"\x1b[0m{canvas.inks.get(name, '')}"


def _titles(canvas: Canvas, layout: Layout, sort: RunSort) -> str:
    ink, x, line = _ink(canvas, "titles"), 0, ""
    for placed in layout.placed:
        if placed.end > canvas.width:
            break
        column = placed.column
        title = f"{column.key} {'↓' if sort.descending else '↑'}" if column.sort == sort.column else column.key
        line += " " * (placed.x - x) + fit(title, placed.width)
        x = placed.end
    return ink + fit(line, canvas.width)


def _row(canvas: Canvas, line: Iterator[Cell], ground: str) -> str:
    text, x = _ink(canvas, f"{ground}.mark") + ("▌ " if ground == "cursor" else "  "), 2
    for cell in line:
        if cell.place.end > canvas.width:
            break
        text += _ink(canvas, f"{ground}.{cell.tone}") + " " * (cell.place.x - x) + cell.text
        x = cell.place.end
    return text + " " * (canvas.width - x)


def header_of(profile: str, freshness: str) -> str:
    """The line at the top, as far as it is known early."""
    return f" runwarden  {safe_text(profile, limit=28)}   {freshness}"
