"""What a terminal would make of a program's bytes: sequences separated from text, and text at its position."""

import re
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Iterator
from dataclasses import dataclass, field
from unicodedata import category

from rich.cells import cell_len

UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
JOINED = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?=[^\x00-\x7f])")
_PIECE = re.compile(
    r"(?P<csi>\x1b\[[0-?]*[ -/]*[@-~])|\x1b(?P<osc>[PX^_\]].*?)(?:\x07|\x1b\\)|(?P<esc>\x1b[ -/]*[0-OQ-WYZ\\`-~])"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)|(?P<control>.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Piece:
    """One sequence, one control character or a stretch of text."""

    kind: str
    """`csi`, `osc` (and the other strings), `esc`, `control` or `text`."""
    text: str
    """The bytes as written; for a string sequence, its content."""


def pieces(data: bytes | str) -> Iterator[Piece]:
    """Split the stream into pieces; a sequence cut off at its end is left out."""
    text = data if isinstance(data, str) else data.decode("utf-8", errors="surrogateescape")
    for match in _PIECE.finditer(text):
        kind = match.lastgroup or ""
        if match[0] == "\x1b" and len(text) - match.start() < 32:
            return
        yield Piece(kind, match[kind])


def unprintable(text: str) -> set[str]:
    """Characters that a terminal does not simply show; a joiner belongs to its surrounding word."""
    return {character for character in JOINED.sub("", text) if category(character) in UNPRINTABLE}


@dataclass
class Screen:
    """The screen's text, as far as absolute positions and text determine it, without colours."""

    width: int
    height: int
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    x: int = 0
    y: int = 0
    rest: str = ""
    """The beginning of an unfinished sequence."""
    decoder: IncrementalDecoder = field(default_factory=lambda: getincrementaldecoder("utf-8")("surrogateescape"))

    def write(self, data: bytes) -> None:
        """Process more of the stream, which may be cut anywhere."""
        text = self.rest + self.decoder.decode(data)
        begun = max(0, text.rfind("\x1b"))
        is_whole = "\x1b" not in text or _PIECE.match(text, begun)[0] != "\x1b"  # type: ignore[index] # the pattern always matches
        self.rest = "" if is_whole else text[begun:]
        for piece in pieces(text if is_whole else text[:begun]):
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

    @property
    def lines(self) -> list[str]:
        return [
            "".join(self.rows.get(y, {}).get(x, " ") for x in range(self.width)).rstrip() for y in range(self.height)
        ]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
