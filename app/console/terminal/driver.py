"""The driver of a terminal: of each repainted line, only the text that changed is written."""

import re
from typing import Any, Final

from rich.cells import cell_len
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_PLACE: Final = re.compile(r"\x1b\[(\d+);(\d+)H")
_STYLE: Final = re.compile(r"\x1b\[[\d;]*m")
_PARTS: Final = re.compile(r"\x1b\[[\d;]*m[^\x1b]*\x1b\[0m|[^\x1b]+|\x1b.*", re.DOTALL)
"""A text in one style, a text in none, or all that follows another sequence."""
_OTHER_SCREEN: Final = "\x1b[?1049"
"""Begins the sequences by which a program takes the terminal over, or gives it back."""


class WrittenText:
    """The text that the terminal shows, by its place.

    When one age in a line changes, Textual writes the line from its left edge: over ssh, a kilobyte a second.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, tuple[str, int]]] = {}
        """A text and its width in cells, by row and column."""
        self._cursor: tuple[int, int] | None = None

    def changes(self, output: str, height: int) -> str:
        """The part of this output that the terminal does not show yet; all of it if it draws every row."""
        before, *placed = _PLACE.split(output)
        texts = list(zip(map(int, placed[::3]), map(int, placed[1::3]), placed[2::3], strict=True))
        # A frame ends by placing the cursor.
        cursor = texts.pop()[:2] if texts and not texts[-1][2] else None
        if _OTHER_SCREEN in output or len({y for y, _, _ in texts}) >= height:
            self._rows.clear()
        changed = before + "".join(self._changed(y, x, text.removesuffix("\n")) for y, x, text in texts)
        if cursor is None or not (changed or cursor != self._cursor):
            return changed
        self._cursor = cursor
        return "{}\x1b[{};{}H".format(changed, *cursor)

    def _changed(self, y: int, x: int, text: str) -> str:
        row = self._rows.setdefault(y, {})
        shown, shown_width = row.get(x, ("", 0))
        if text == shown:
            return ""
        width = _width(text)
        for column, (_, cells) in tuple(row.items()):
            if column < x + width and x < column + cells:
                del row[column]
        row[x] = text, width
        old, new, first, last = _PARTS.findall(shown), _PARTS.findall(text), 0, 0
        if width == shown_width:
            shortest = min(len(old), len(new))
            while first < shortest and old[first] == new[first] and _is_plain(new[first]):
                x += _width(new[first])
                first += 1
            if all(map(_is_plain, (*old[first:], *new[first:]))):
                while last < shortest - first and old[-1 - last] == new[-1 - last]:
                    last += 1
        return f"\x1b[{y};{x}H{''.join(new[first : len(new) - last])}"


def _width(text: str) -> int:
    return cell_len(_STYLE.sub("", text))


def _is_plain(part: str) -> bool:
    """Whether every terminal gives each character one cell: of others, some know another width than ours."""
    return _width(part) == len(_STYLE.sub("", part))


class TerminalDriver(LinuxDriver):
    """Textual's driver, which writes changes alone."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._written = WrittenText()
        self._app_on_show = app

    def write(self, data: str) -> None:
        """Write what the terminal does not show yet."""
        if changes := self._written.changes(data, self._app_on_show.size.height):
            super().write(changes)
