"""NO_COLOR: no colour at all leaves the program; what only a background said is said by reverse video."""

from typing import TYPE_CHECKING

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter

if TYPE_CHECKING:
    from textual.color import Color

PLAIN = Style.from_color(RichColor.default(), RichColor.default())
BLACK = (0, 0, 0)


class Uncoloured(LineFilter):
    """Takes colours away; goes with the theme of that name, where every background but a cursor's is black."""

    def apply(self, segments: list[Segment], background: "Color") -> list[Segment]:  # noqa: ARG002 — Textual's signature
        """The segments, with attributes only."""
        return [Segment(text, None if style is None else _plain(style), control) for text, style, control in segments]


def _plain(style: Style) -> Style:
    behind = style.bgcolor.triplet if style.bgcolor is not None else None
    is_lit = behind is not None and tuple(behind) != BLACK
    return style + PLAIN + Style(reverse=bool(style.reverse) != is_lit)
