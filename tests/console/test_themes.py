"""The themes: every tone can be read on every ground, by everyone, and no two tones are told apart by hue alone."""

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

from app.console.session.user_preferences import keep
from app.console.themes import FEW_COLOURS, FEW_LIGHT_COLOURS, NO_COLOURS, THEMES
from tests.console.conftest import Staged
from tests.console.scenes import settings_for
from tests.lab import Lab
from widgets.kit.badges import STYLES

ROOT = Path(__file__).parents[2]
READABLE = 4.5
"""Contrast of text that has to be read, by WCAG 2 (AA)."""
HIGH = 7.0
"""The same, AAA: what a high contrast theme is for."""
OWN_GROUNDS = (NO_COLOURS, FEW_COLOURS, FEW_LIGHT_COLOURS)
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


async def test_a_theme_that_is_gone_is_replaced_and_reported_once(staged: Staged, board: Lab, tmp_path: Path) -> None:
    """Whether it was configured or chosen in the palette, which lists only the console's own."""
    settings = settings_for(board.base_url, tmp_path)
    await keep(settings, lambda known: known.with_theme("nord", "runwarden"))
    reported = []
    for configured in ("runwarden", "runwarden", "nord"):
        async with staged(theme=configured, synced=False) as scene:
            assert scene.app.theme == "runwarden"
            reported.append(sum("there is no theme 'nord'" in toast for toast in scene.toasts))

    assert reported == [1, 0, 1]
