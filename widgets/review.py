"""A review: its laid-out lines, and its findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from re import Pattern
from typing import Final

from textual.message import Message
from textual.strip import Strip

from app.text import SafeText, safe_text
from storage.records.results import Finding, Severity
from widgets.badges import Tone
from widgets.cells import beside
from widgets.line_table import TableLine
from widgets.review_layout import ReviewLine
from widgets.text_view import TextPiece, TextView

SEVERITY_TONES: Final[dict[Severity | None, Tone]] = {"blocker": "bad", "major": "bad", "minor": "warn"}


@dataclass(frozen=True, slots=True)
class FindingItem:
    """A finding as a line of a table."""

    finding: Finding
    number: int

    @property
    def key(self) -> str:
        """Its index among the findings."""
        return str(self.number)

    def cells(self, now: datetime) -> TableLine:
        """Its severity, location and message."""
        del now
        finding = self.finding
        location = safe_text(finding.path) + (f":{finding.line}" if finding.line else "")
        tone = SEVERITY_TONES.get(finding.severity, "quiet")
        word = SafeText(finding.severity or "·")
        return (word, tone), (SafeText(location), "plain"), (safe_text(finding.text), "quiet")


class ReviewView(TextView):
    """Draws a review; its owner lays it out in a thread, for each width."""

    @dataclass
    class LayoutRequested(Message):
        """The lines are needed for another width."""

        width: int

    def __init__(self) -> None:
        super().__init__()
        self._lines: Sequence[ReviewLine] = ()
        self._about: tuple[str, Sequence[str]] = "", ()

    def tell(self, name: str, about: Sequence[str]) -> None:
        """Name the review above its lines, with a remark."""
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
        """The line of the text under the cursor."""
        return self._lines[self.cursor].source if self._lines else 0

    def on_resize(self) -> None:
        """Request the lines for this width."""
        self.post_message(self.LayoutRequested(self.scrollable_content_region.width - 1))

    def head(self) -> Sequence[TextPiece]:
        """The review's name and remark."""
        name, about = beside(*self._about, self.scrollable_content_region.width - 4)
        return TextPiece(f" {name}", "accent"), TextPiece(f"   {about}", "quiet")

    def draw(self, index: int, width: int, ground: str) -> Strip:
        """A line."""
        pieces = self.lit(self._lines[index].pieces)
        if ground:  # The cursor is visible in code as well.
            pieces = [piece if piece.ground == "match" else piece._replace(ground="") for piece in pieces]
        return self.strip((TextPiece(" "), *pieces), width, ground, self._x)

    def find(self, pattern: Pattern[bytes], begin: int, step: int) -> int | None:
        """The next line that matches."""
        lines = self._lines
        rows = range(begin, len(lines)) if step > 0 else range(min(begin, len(lines)) - 1, -1, -1)
        texts = ((row, "".join(piece.text for piece in lines[row].pieces)) for row in rows)
        return next((row for row, text in texts if pattern.search(text.encode())), None)
