"""What a room says when it has nothing to show, or when what it shows is not what it should be."""

from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from textual.content import Content

from widgets.badges import STYLES, Tone

MEASURE: Final = 64
"""Cells of a notice's longest line."""
MARGIN: Final = 2
"""Cells that stay empty at each side of it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened, what is still true, and what to press."""

    glyph: str
    title: str
    lines: tuple[str, ...] = ()
    """Paragraphs; the last one says what to do."""
    tone: Tone = "quiet"


def wrapped(notice: Notice, width: int) -> list[str]:
    """What stands below the title, in lines for a view of that many cells."""
    measure = max(1, min(MEASURE, width - 2 * MARGIN))
    return [part for text in notice.lines for part in wrap(text, measure) or [""]]


def notice_content(notice: Notice) -> Content:
    """The notice as centred lines."""
    parts: list[tuple[str, str]] = [(f"{notice.glyph}  {notice.title}", f"{STYLES[notice.tone]} bold")]
    parts += [(f"\n{line}", STYLES["quiet"]) for line in ("", *notice.lines)]
    return Content.assemble(*parts)
