"""What a terminal would make of a program's bytes: sequences told from text, and the text put where it belongs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from unicodedata import category

from rich.cells import cell_len

UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
JOINED = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?=[^\x00-\x7f])")
_CSI = re.compile(r"\x1b\[([0-?]*)([ -/]*)([@-~])")
_STRING = re.compile(r"\x1b([PX^_\]])(.*?)(?:\x07|\x1b\\)", re.DOTALL)
_ESCAPE = re.compile(r"\x1b([ -/]*[0-OQ-WYZ\\`-~])")
_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Piece:
    """One sequence, one control character or a stretch of text."""

    kind: str
    """`csi`, `osc` (and the other strings), `esc`, `control` or `text`."""
    text: str
    """As written; of a string its content."""


def pieces(data: bytes) -> Iterator[Piece]:
    """The stream, piece by piece; a sequence cut short at its end is left out."""
    text, at = data.decode("utf-8", errors="surrogateescape"), 0
    while at < len(text):
        if match := _CSI.match(text, at):
            yield Piece("csi", match[0])
        elif match := _STRING.match(text, at):
            yield Piece("osc", f"{match[1]}{match[2]}")
        elif text[at] == "\x1b" and len(text) - at < 32:
            return
        elif match := _ESCAPE.match(text, at):
            yield Piece("esc", match[0])
        elif match := _TEXT.match(text, at):
            yield Piece("text", match[0])
        else:
            yield Piece("control", text[at])
            at += 1
            continue
        at = match.end()


def _whole(data: bytes) -> tuple[bytes, bytes]:
    """The data up to its last whole piece, and the beginning of the next one."""
    start = data.rfind(b"\x1b")
    begun = data[start:] if start >= 0 else b""
    text = begun.decode("utf-8", errors="replace")
    if begun and not any(pattern.match(text) for pattern in (_CSI, _STRING, _ESCAPE)):
        return data[:start], begun
    # A character of several bytes may be cut as well.
    for cut in range(1, min(4, len(data) + 1)):
        if data[-cut] >= 0xC0:
            whole = cut >= (2 if data[-cut] < 0xE0 else 3 if data[-cut] < 0xF0 else 4)
            return (data, b"") if whole else (data[:-cut], data[-cut:])
        if data[-cut] < 0x80:
            break
    return data, b""


def unprintable(text: str) -> set[str]:
    """The characters of a text that a terminal does not simply show; a joiner belongs to the word around it."""
    return {character for character in JOINED.sub("", text) if category(character) in UNPRINTABLE}


@dataclass
class Screen:
    """The picture, as far as absolute positions and text make it; colours are left out."""

    width: int
    height: int
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    x: int = 0
    y: int = 0
    farthest: tuple[int, int] = (0, 0)
    """The rightmost column and the lowest line that were ever written to, from 1."""
    _rest: bytes = b""

    def blank(self, width: int, height: int) -> "Screen":
        """An empty one that goes on where this one stands, in the middle of a sequence as it may be."""
        return Screen(width, height, x=self.x, y=self.y, _rest=self._rest)

    def write(self, data: bytes) -> None:
        """Follows the stream, which may be cut anywhere."""
        data, self._rest = _whole(self._rest + data)
        for piece in pieces(data):
            if piece.kind == "text":
                self._print(piece.text)
            elif piece.kind == "csi" and piece.text.endswith("H"):
                line, _, column = piece.text[2:-1].partition(";")
                self.x, self.y = int(column or 1) - 1, int(line or 1) - 1
            elif piece.kind == "control" and piece.text in "\r\n":
                self.x, self.y = (0, self.y) if piece.text == "\r" else (self.x, self.y + 1)
            elif piece.text in {"\x1b[?1049h", "\x1b[?1049l", "\x1b[2J"}:
                self.rows.clear()

    def _print(self, text: str) -> None:
        row = self.rows.setdefault(self.y, {})
        for character in text:
            row[self.x] = character
            self.x += 1 if character.isascii() else cell_len(character)
        self.farthest = (max(self.farthest[0], self.x), max(self.farthest[1], self.y + 1))

    @property
    def lines(self) -> list[str]:
        return [
            "".join(self.rows.get(y, {}).get(x, " ") for x in range(self.width)).rstrip() for y in range(self.height)
        ]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
