"""The console's own themes; Textual's come on top."""

from typing import TYPE_CHECKING, Final

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

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


DEFAULT: Final = "runwarden"
FEW_COLOURS: Final = "runwarden-16"
"""In place of the default where the terminal has 16 colours: soft hues would all become the same grey there."""

NO_COLOURS: Final = "runwarden-no-colour"
"""Under NO_COLOR: all is black and white, so that whatever is lit is a cursor or a choice."""

THEMES: Final = (
    Theme(
        name="runwarden",
        primary="#6cb6ff",
        secondary="#b6a4f0",
        accent="#7fd6c2",
        success="#6fcf97",
        warning="#f0c05a",
        error="#ff7b72",
        foreground="#dbe2ea",
        background="#0f1318",
        surface="#141a21",
        panel="#1d2530",
        variables={"block-cursor-blurred-background": "#1e3145", "input-selection-background": "#6cb6ff 35%"},
    ),
    Theme(
        name="runwarden-light",
        primary="#0b62b8",
        secondary="#6b4fc0",
        accent="#0a7c6a",
        success="#12733b",
        warning="#875500",
        error="#b8261f",
        foreground="#1b2229",
        background="#fafbfc",
        surface="#f1f4f7",
        panel="#e3e9ef",
        dark=False,
        variables={"block-cursor-blurred-background": "#dfeaf6", "input-selection-background": "#0b62b8 25%"},
    ),
    # Okabe and Ito's hues: they stay apart for every kind of colour blindness.
    Theme(
        name="runwarden-colour-blind",
        primary="#56b4e9",
        secondary="#cfcfcf",
        accent="#f0e442",
        success="#3cc9a3",
        warning="#f0e442",
        error="#ff8a3d",
        foreground="#f2f2f2",
        background="#101114",
        surface="#16181c",
        panel="#23262c",
        variables={"block-cursor-blurred-background": "#1d3442"},
    ),
    Theme(
        name="runwarden-contrast",
        primary="#7fc8ff",
        secondary="#e0c8ff",
        accent="#ffffff",
        success="#7dff9b",
        warning="#ffe45c",
        error="#ff8f8f",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#2a2a2a",
        variables={"block-cursor-blurred-background": "#00456b"},
    ),
    Theme(
        name=FEW_COLOURS,
        primary="#00ffff",
        secondary="#ff00ff",
        accent="#00ffff",
        success="#00ff00",
        warning="#ffff00",
        error="#ff0000",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#000080",
        variables={"block-cursor-blurred-background": "#000080", "input-selection-background": "#000080"},
    ),
    Theme(
        name=NO_COLOURS,
        primary="#ffffff",
        secondary="#ffffff",
        accent="#ffffff",
        success="#ffffff",
        warning="#ffffff",
        error="#ffffff",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#000000",
        variables={"block-cursor-blurred-background": "#ffffff", "input-selection-background": "#ffffff"},
    ),
)


def configured_theme(name: str, *, no_color: bool, system: str | None) -> str:
    """The theme to begin with.

    Args:
        name: As the configuration has it.
        no_color: Whether NO_COLOR is set.
        system: The terminal's colour system, as Rich names it.
    """
    if no_color:
        return NO_COLOURS
    if name not in BUILTIN_THEMES and all(theme.name != name for theme in THEMES):
        name = DEFAULT
    return FEW_COLOURS if name == DEFAULT and system == "standard" else name
