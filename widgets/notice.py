"""What a room says when it has nothing to show, or when what it shows is not what it should be."""

from dataclasses import dataclass

from textual.content import Content

from widgets.badges import STYLES, Tone


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened, what is still true, and what to press."""

    glyph: str
    title: str
    lines: tuple[str, ...] = ()
    """Each fits into 60 cells; the last one says what to do."""
    tone: Tone = "quiet"


def notice_content(notice: Notice) -> Content:
    """The notice as centred lines."""
    parts: list[tuple[str, str]] = [(f"{notice.glyph}  {notice.title}", f"{STYLES[notice.tone]} bold")]
    parts += [(f"\n{line}", STYLES["quiet"]) for line in ("", *notice.lines)]
    return Content.assemble(*parts)
