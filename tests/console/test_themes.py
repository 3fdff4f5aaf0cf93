"""The themes: every tone can be read on every ground, by everyone, and no two tones are told apart by hue alone."""

import re
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.theme import Theme

from app.console.session.user_preferences import keep
from app.console.themes import FEW_COLOURS, FEW_LIGHT_COLOURS, NO_COLOURS, THEMES, ColourRemover
from tests.console.conftest import Staged
from tests.console.quiet import strips
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
PALETTES = {
    "Linux": "000000 aa0000 00aa00 aa5500 0000aa aa00aa 00aaaa aaaaaa"
    " 555555 ff5555 55ff55 ffff55 5555ff ff55ff 55ffff ffffff",
    "xterm": "000000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5"
    " 7f7f7f ff0000 00ff00 ffff00 5c5cff ff00ff 00ffff ffffff",
    "Windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd cccccc"
    " 767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
}
"""The sixteen colours of a Linux console, of xterm and of the Windows console."""
WORD = re.compile(r"[^\s\u2500-\u259f]")
"""Something to read: no line of a frame, and no scrollbar."""
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


@pytest.mark.parametrize(("configured", "used"), [("runwarden", FEW_COLOURS), ("runwarden-light", FEW_LIGHT_COLOURS)])
async def test_sixteen_colours_are_readable(
    staged: Staged, monkeypatch: pytest.MonkeyPatch, configured: str, used: str
) -> None:
    """In every palette: keys, states, the cursor's line and what is quiet, on every tab, in a run and in a form."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")
    shown: set[tuple[str, str, int, int, bool]] = set()
    async with staged((120, 32), theme=configured) as scene:
        assert scene.app.theme == used
        for key in ("1", "space", "j", "2", "3", "4", "5", "6", "7", "1", "enter", "r", "d", "l", "escape", "n"):
            await scene.press(key)
            screen = scene.app.screen
            # What lies below a form is dimmed.
            place = screen.children[0].region if isinstance(screen, ModalScreen) else screen.region
            for line in strips(scene.app)[place.y : place.bottom]:
                for text, style, _ in Strip(line).crop(place.x, place.right):
                    if style is not None and WORD.search(text):
                        ink, ground = (number(part) for part in (style.color, style.bgcolor))
                        ink, ground = (ground, ink) if style.reverse else (ink, ground)
                        shown.add((key, text.strip(), ink, ground, bool(style.dim)))

    for name, palette in PALETTES.items():
        colours = [f"#{each}" for each in palette.split()]
        unread = {one for one in shown if one[-1] or contrast(colours[one[2]], colours[one[3]]) < READABLE}
        assert not unread, name


def number(colour: RichColor | None) -> int:
    """Which of the sixteen the terminal shows."""
    assert colour is not None
    return colour.downgrade(ColorSystem.STANDARD).number or 0


def test_without_colours_a_caret_is_seen_in_the_field_that_has_the_focus() -> None:
    """A field's ground is hardly lit by its focus; were it reversed as a cursor is, so would be all within it."""
    grounds = [Style(bgcolor=RichColor.from_rgb(*[part] * 3)) for part in (0, 13, 64, 255)]
    plain = ColourRemover().apply([Segment(" ", style) for style in grounds], Color(0, 0, 0))

    assert [segment.style.reverse for segment in plain if segment.style] == [False, False, True, True]


@pytest.mark.parametrize("chosen", ["configured", "stored"])
async def test_a_theme_that_is_gone_is_replaced_and_reported_once(
    staged: Staged, board: Lab, tmp_path: Path, chosen: str
) -> None:
    """Whether it was configured or chosen in the palette; the palette lists only the console's own."""
    configured = "nord" if chosen == "configured" else "runwarden"
    if chosen == "stored":
        settings = settings_for(board.base_url, tmp_path)
        await keep(settings, lambda known: known.with_theme("nord", configured))
    reported = []
    for _ in range(2):
        async with staged(theme=configured) as scene:
            assert scene.app.theme == "runwarden"
            reported.append([toast for toast in scene.toasts if "there is no theme 'nord'" in toast])

    assert [len(each) for each in reported] == [1, 0]
