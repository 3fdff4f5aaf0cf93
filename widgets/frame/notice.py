"""Notices: a trouble or a gap, and the key that helps."""

from textwrap import wrap
from typing import Final

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from widgets.kit.badges import STYLES, Tone
from widgets.kit.cells import fit, shorten

MEASURE: Final = 64
"""The most cells in a line of a notice."""
MARGIN: Final = 2
"""Empty cells at each side of it."""


class Notice(Struct, frozen=True):
    """What happened, what still holds, and which key helps."""

    glyph: str
    title: str
    lines: tuple[str, ...] = ()
    """Paragraphs; the last one says what to do."""
    tone: Tone = "quiet"


def wrapped(notice: Notice, width: int) -> list[str]:
    """The paragraphs, wrapped for a view of this width."""
    measure = max(1, min(MEASURE, width - 2 * MARGIN))
    return [part for text in notice.lines for part in wrap(text, measure) or [""]]


def above(height: int, lines: int) -> int:
    """Empty lines above a notice of this many lines, which places it a little above the middle."""
    return max(0, (height - lines) // 3)


def notice_line(notice: Notice | None, y: int, width: int, height: int) -> tuple[str, Tone, bool]:
    """Line `y` of a view of this size that shows the notice: centred text, its tone, and whether it is the title."""
    lines = () if notice is None else (f"{notice.glyph}  {notice.title}", "", *wrapped(notice, width))
    at = y - above(height, len(lines))
    if notice is None or not 0 <= at < len(lines):
        return " " * width, "plain", False
    text = shorten(lines[at], max(1, width - 2 * MARGIN))
    return fit(" " * ((width - cell_len(text)) // 2) + text, width), "quiet" if at else notice.tone, not at


class NoticePage(Widget):
    """A notice in place of a screen's content."""

    DEFAULT_CSS = "NoticePage { width: 1fr; height: 1fr; text-align: center; }"

    notice: reactive[Notice | None] = reactive(None)

    def render(self) -> Content:
        """Centred lines."""
        if (notice := self.notice) is None:
            return Content()
        lines = ("", *wrapped(notice, self.size.width))
        title = (f"{notice.glyph}  {notice.title}", f"{STYLES[notice.tone]} bold")
        rest = [(f"\n{line}", STYLES["quiet"]) for line in lines]
        return Content.assemble("\n" * above(self.size.height, len(lines) + 1), title, *rest)


class Banner(Static):
    """A notice in one line, in full under the mouse; hidden while there is none."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._notice: Notice | None = None
        self.display = False

    def show(self, notice: Notice | None) -> None:
        """Show the notice; None: hide it."""
        if notice == self._notice:
            return
        self._notice = notice
        self.display = notice is not None
        if notice is not None:
            head = (f"{notice.glyph} {notice.title}  ", f"{STYLES[notice.tone]} bold")
            self.update(Content.assemble(head, " ".join(notice.lines)))
            self.tooltip = "\n".join((notice.title, *notice.lines))
