"""The themes: every tone can be read on every ground, by everyone, and no two tones are told apart by hue alone."""

from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from app.console.themes import FEW_COLOURS, NO_COLOURS, THEMES, ColourRemover
from widgets.badges import STYLES

ROOT = Path(__file__).parents[2]
READABLE = 4.5
"""Contrast of text that has to be read, by WCAG 2 (AA)."""
HIGH = 7.0
"""The same, AAA: what a high contrast theme is for."""
OWN_GROUNDS = (NO_COLOURS, FEW_COLOURS)
"""Where the cursor's line is in reverse, or in what the terminal's own palette makes of blue."""
TONES = ("primary", "secondary", "accent", "success", "warning", "error", "foreground")


def luminance(colour: Color) -> float:
    parts = [part / 255 for part in (colour.r, colour.g, colour.b)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lights = sorted((luminance(Color.parse(one)), luminance(Color.parse(other))), reverse=True)
    return (lights[0] + 0.05) / (lights[1] + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_tone_is_readable(theme: Theme) -> None:
    """On the background, on surfaces and on the cursor's line; what is quiet on panels as well."""
    grounds = [str(theme.background), str(theme.surface)]
    cursor = [] if theme.name in OWN_GROUNDS else [theme.variables["block-cursor-blurred-background"]]
    least = HIGH if "contrast" in theme.name else READABLE
    for tone in TONES:
        keys = [str(theme.panel)] if tone == "accent" else []
        for ground in (*grounds, *cursor, *keys):
            needed = READABLE if ground in (*cursor, *keys) else least

            assert contrast(str(getattr(theme, tone)), ground) >= needed, (tone, ground)

    ink, _, share = STYLES["quiet"].partition(" ")
    assert ink == "$foreground"
    for ground in (*grounds, str(theme.panel), *cursor):
        quiet = Color.parse(ground).blend(Color.parse(str(theme.foreground)), int(share.removesuffix("%")) / 100)

        assert contrast(quiet.hex6, ground) >= READABLE, ground


def test_what_is_written_on_blue_is_bright() -> None:
    """The sixteen colours' header and cursor are blue, on which the darker red and green cannot be read."""
    (theme,) = (theme for theme in THEMES if theme.name == FEW_COLOURS)
    found = [RichColor.parse(str(getattr(theme, tone))).downgrade(ColorSystem.STANDARD).number for tone in TONES]

    assert min(number or 0 for number in found) > 8, found


def test_without_colours_a_caret_is_seen_in_the_field_that_has_the_focus() -> None:
    """A field's ground is hardly lit by its focus; were it reversed as a cursor is, so would be all within it."""
    grounds = [Style(bgcolor=RichColor.from_rgb(*[part] * 3)) for part in (0, 13, 64, 255)]
    plain = ColourRemover().apply([Segment(" ", style) for style in grounds], Color(0, 0, 0))

    assert [segment.style.reverse for segment in plain if segment.style] == [False, False, True, True]
