"""A review: its laid-out lines, and its findings."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.strip import Strip

from app.engine.text import safe_text
from storage.records.results import Finding, Severity
from widgets.kit.badges import STYLES, Tone
from widgets.kit.cells import beside, fit, shorten
from widgets.kit.choice_lists import LeadRow
from widgets.kit.text_view import TextPiece, TextView, safe_line

if TYPE_CHECKING:
    from markdown_it.token import Token


MAX_CHARACTERS: Final = 400_000
MAX_BLOCK_LINES: Final = 300
LEAST_WIDTH: Final = 20
MARKER: Final = re.compile(r"(?s)<!-- runwarden.*?-->")
"""The service's own comment, which marks a review."""
CODE: Final = re.compile(r"(`+) ?(.+?) ?\1")
_PARSING: Final = Lock()
"""The parser fills its tables of addresses at their first use, in sight of other threads."""


class ReviewLine(Struct, frozen=True):
    """A line of the review, laid out for one width."""

    pieces: tuple[TextPiece, ...]
    source: int
    """The line of the text, from 0, that it comes from."""


def review_lines(text: str, width: int) -> tuple[ReviewLine, ...]:
    """Lay out Markdown for a width; links and images become text, and everything is safe. Runs in a thread."""
    from markdown_it import MarkdownIt

    with _PARSING:
        tokens = MarkdownIt("commonmark").enable("table").parse(text[:MAX_CHARACTERS])
    page = _Page(max(LEAST_WIDTH, width))
    page.lay_out(tokens)
    if not page.lines and text.strip():  # The blocks are nested too deep for the parser.
        page.code(text[:MAX_CHARACTERS])
    if len(text) > MAX_CHARACTERS:
        page.add([TextPiece("… The rest is left out: the file is too long.", "warn")])
    return tuple(page.lines)


@dataclass(slots=True)
class _Page:
    """The lines of one width, laid out from top to bottom."""

    width: int
    lines: list[ReviewLine] = field(default_factory=list)
    margins: list[str] = field(default_factory=list)
    """The text before each line, of the blocks around it."""
    bullet: str = ""
    """A list item's mark, which replaces the last margin on the next line."""
    numbers: list[int | None] = field(default_factory=list)
    source: int = 0
    waits: int | None = None
    """The number of margins on the empty line due before the next line; None if none is due."""

    def lay_out(self, tokens: "Sequence[Token]") -> None:
        remaining = iter(tokens)
        tone = "plain"
        for token in remaining:
            self.source = token.map[0] if token.map else self.source
            if token.type == "heading_open":
                tone = "accent"
            elif token.type == "inline":
                self.wrap(list(_inline(token.children or (), tone)))
            elif token.type in {"heading_close", "paragraph_close"}:
                tone = "plain"
                self.gap(unless=token.hidden)
            elif token.type in {"fence", "code_block"}:
                self.code(token.content)
            elif token.type == "html_block" and (text := MARKER.sub("", token.content)).strip():
                self.code(text)
            elif token.type == "hr":
                self.add([TextPiece("─" * self.room, "quiet")])
            elif token.type == "table_open":
                self.table(list(_cells(remaining)))
            elif token.type in {"bullet_list_open", "ordered_list_open"}:
                self.numbers.append(int(token.attrs.get("start", 1)) if token.tag == "ol" else None)
            elif token.type in {"bullet_list_close", "ordered_list_close"}:
                self.numbers.pop()
                self.gap(unless=bool(self.numbers))
            elif token.type == "list_item_open":
                number = self.numbers[-1]
                self.bullet = "• " if number is None else f"{number}. "
                self.numbers[-1] = None if number is None else number + 1
                self.margins.append(" " * len(self.bullet))
            elif token.type == "blockquote_open":
                self.margins.append("│ ")
            elif token.type in {"list_item_close", "blockquote_close"}:
                self.margins.pop()
                self.bullet = ""

    @property
    def room(self) -> int:
        """Cells of a line without its margin."""
        return max(LEAST_WIDTH // 2, self.width - sum(map(len, self.margins)))

    def add(self, pieces: Sequence[TextPiece]) -> None:
        if self.waits is not None:
            margin = "".join(self.margins[: self.waits]).rstrip()
            self.lines.append(ReviewLine((TextPiece(margin, "quiet"),), self.source))
            self.waits = None
        margins = [*self.margins[:-1], self.bullet] if self.bullet else self.margins
        self.bullet = ""
        self.lines.append(ReviewLine((TextPiece("".join(margins), "quiet"), *pieces), self.source))

    def gap(self, *, unless: bool = False) -> None:
        if self.lines and not unless:
            self.waits = len(self.margins)

    def wrap(self, pieces: Sequence[TextPiece]) -> None:
        line: list[TextPiece] = []
        used = 0
        for piece in _words(pieces, self.room):
            size = cell_len(piece.text)
            if line and (piece.text == "\n" or used + len(piece.text.rstrip()) > self.room):
                self.add(line)
                line, used = [], 0
            if piece.text != "\n" and (line or piece.text.strip()):
                line.append(piece)
                used += size
        if line:
            self.add(line)

    def code(self, text: str) -> None:
        lines = text.rstrip("\n").split("\n")
        for line in lines[:MAX_BLOCK_LINES]:
            self.add([TextPiece(fit(safe_line(line), self.room), "plain", "code")])
            self.source += 1
        self.left_out(len(lines))
        self.gap()

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table, a row a line; columns share the width in proportion to their content."""
        visible = rows[:MAX_BLOCK_LINES]
        needs = [max(1, *map(cell_len, column)) for column in zip(*visible, strict=False)]
        room = self.room - 2 * len(needs)
        widths = needs
        while sum(widths) > room and max(widths) > 1:
            widths = [width - 1 if width == max(widths) else width for width in widths]
        for number, row in enumerate(visible):
            tone = "strong" if number == 0 else "plain"
            cells = zip(row, widths, strict=False)
            self.add([TextPiece(fit(shorten(text, width), width) + "  ", tone) for text, width in cells])
            self.source += 1
        self.left_out(len(rows))
        self.gap()

    def left_out(self, lines: int) -> None:
        """Add a remark on how many lines are not shown."""
        if lines > MAX_BLOCK_LINES:
            self.add([TextPiece(f"… {lines - MAX_BLOCK_LINES:,} more lines", "quiet")])


def _inline(tokens: "Sequence[Token]", tone: str) -> Iterator[TextPiece]:
    strong = 0
    address = ""
    for token in tokens:
        if token.type in {"strong_open", "strong_close"}:
            strong += 1 if token.type == "strong_open" else -1
        elif token.type in {"softbreak", "hardbreak"}:
            yield TextPiece(" " if token.type == "softbreak" else "\n")
        elif token.type == "html_inline" and MARKER.fullmatch(token.content):
            continue
        elif token.type == "code_inline":
            yield TextPiece(safe_line(token.content), "function")
        elif token.type == "link_open":
            address = safe_text(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            yield TextPiece(f" ({address})", "quiet")
        elif token.type == "image":
            yield TextPiece(
                f"[image: {safe_line(token.content)}] ({safe_text(str(token.attrs.get('src', '')))})", "quiet"
            )
        elif token.content:
            yield TextPiece(safe_line(token.content), "strong" if strong and tone == "plain" else tone)


def _words(pieces: Sequence[TextPiece], width: int) -> Iterator[TextPiece]:
    """The pieces word by word, each with its trailing blank; a word longer than a line is split."""
    for piece in pieces:
        for word in [piece.text] if piece.text == "\n" else piece.text.replace(" ", " \0").split("\0"):
            text = word
            while cell_len(text) > width:
                head = shorten(text, width)[:-1] or text[:1]
                yield piece._replace(text=head)
                text = text[len(head) :]
            if text:
                yield piece._replace(text=text)


def _cells(tokens: "Iterator[Token]") -> Iterator[list[str]]:
    row: list[str] = []
    for token in tokens:
        if token.type == "table_close":
            return
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append("".join(piece.text for piece in _inline(token.children or (), "plain")).replace("\n", " "))
        elif token.type == "tr_close":
            yield row


SEVERITY_TONES: Final[dict[Severity | None, Tone]] = {"blocker": "bad", "major": "bad", "minor": "warn"}


def finding_rows(findings: Sequence[Finding]) -> list[LeadRow]:
    """One row per finding, keyed by its number."""
    rows = []
    for number, finding in enumerate(findings):
        location = safe_text(finding.path) + (f":{finding.line}" if finding.line else "")
        style = STYLES[SEVERITY_TONES.get(finding.severity, "quiet")]
        words = safe_text(CODE.sub(r"\2", finding.text), limit=2_000)
        head = (f"{finding.severity or '·':<9}", style), location
        rows.append(LeadRow(Content.assemble(*head, (f"\n{words}", STYLES["quiet"])), str(number), leads=True))
    return rows


class ReviewView(TextView):
    """Draws a review; its owner lays it out in a thread, for each width."""

    class Moved(Message):
        """The cursor is on another line."""

    class LayoutRequested(Message):
        """The lines are needed for another width."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[ReviewLine] = ()
        self._about: tuple[str, Sequence[str]] = "", ()

    def cursor_moved(self) -> None:
        self.post_message(self.Moved())

    def set_heading(self, name: str, about: Sequence[str]) -> None:
        self._about = name, about
        self.repaint_header()

    def take(self, lines: Sequence[ReviewLine]) -> None:
        """Show these lines; the cursor stays on its text."""
        source = self._lines[self.cursor].source if self._lines else 0
        self._lines = lines
        self.resize_to(len(lines))
        self.go_to(source)

    def go_to(self, source: int) -> None:
        """Put the cursor on the first line that comes from this line of the text."""
        index = next((index for index, line in enumerate(self._lines) if line.source >= source), self.total - 1)
        self.put_cursor(index)

    @property
    def source(self) -> int:
        return self._lines[self.cursor].source if self._lines else 0

    def on_resize(self) -> None:
        self.post_message(self.LayoutRequested())

    def head(self) -> Sequence[TextPiece]:
        name, about = beside(*self._about, self.scrollable_content_region.width - 4)
        return TextPiece(f" {name}", "accent"), TextPiece(f"   {about}", "quiet")

    def draw(self, index: int, width: int, ground: str) -> Strip:
        pieces = self.lit(self._lines[index].pieces)
        if ground:  # The cursor is visible in code as well.
            pieces = [piece if piece.ground == "match" else piece._replace(ground="") for piece in pieces]
        return self.pan((TextPiece(" "), *pieces), width, ground)

    def texts(self, row: int) -> tuple[bytes]:
        return ("".join(piece.text for piece in self._lines[row].pieces).encode(),)
