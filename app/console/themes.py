"""The console's themes, and what a user chose for all profiles: theme and recent choices of the palette."""

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec.json
from msgspec import Struct
from msgspec.structs import replace
from rich.color import Color as RichColor
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from app.engine.atomic_file import alone, replacing
from app.engine.text import did_you_mean
from app.profiles import Settings, data_root

if TYPE_CHECKING:
    from app.console.guard import BaseApp

PLAIN: Final = Style.from_color(RichColor.default(), RichColor.default())
FAINT_PERCENT: Final = 40
"""The brightest background of a field: on a brighter one the caret would be lost."""
DEFAULT: Final = "runwarden"
FEW_COLOURS: Final = "runwarden-16"
"""The default where the terminal has 16 colours: soft hues would all become the same grey."""
LIGHT: Final = "runwarden-light"
FEW_LIGHT_COLOURS: Final = "runwarden-light-16"
"""The same for the light theme. Green and yellow cannot be read on white."""
NO_COLOURS: Final = "runwarden-no-colour"
"""The theme for NO_COLOR: black and white, so that anything bright is a cursor or a choice."""
_RED, _BLUE, _LIGHT_GREY, _GREY, _BRIGHT_RED, _WHITE = 1, 4, 7, 8, 9, 15
_READ_ON_BLUE: Final = frozenset({0, 4, 7, 11, 14, 15})
"""The colours readable on blue, with black and blue, in which only lines and scrollbars are drawn."""
_PARTS: Final = "primary secondary accent success warning error foreground background surface panel"
_FILE: Final = "console.json"
_VERSION: Final = 1
MAX_RECENT: Final = 12
"""Names kept for the palette."""


class StyleFilter(LineFilter):
    """Changes the style of each text that is drawn."""

    def __init__(self, changed: Callable[[Style], Style]) -> None:
        super().__init__()
        self._changed = changed

    def apply(self, segments: list[Segment], _background: Color) -> list[Segment]:
        return [
            Segment(text, None if style is None else self._changed(style), control) for text, style, control in segments
        ]


@lru_cache(1024)
def _readable(style: Style) -> Style:
    """Replace, on terminals with 16 colours, a pair of colours that cannot be read."""
    if style.color is None or style.bgcolor is None:
        return style
    text, ground = (part.downgrade(ColorSystem.STANDARD).number for part in (style.color, style.bgcolor))
    if ground == _GREY:
        return style + Style(color="#000000", bgcolor="#aaaaaa", dim=False)
    if (ground == _LIGHT_GREY and text not in {_BLUE, _RED}) or (ground == _WHITE and text == _GREY):
        return style + Style(color="#000000")
    if ground == _LIGHT_GREY and text == _RED:
        return style + Style(color="#ffffff", bgcolor="#aa0000")
    if ground != _BLUE or text in _READ_ON_BLUE:
        return style
    return style + Style(color="#ffffff", bgcolor="#aa0000" if text == _BRIGHT_RED else None)


def _plain(style: Style) -> Style:
    """Remove colours, for the theme without any: every background except a cursor's is black."""
    behind = style.bgcolor.triplet if style.bgcolor is not None else None
    is_lit = behind is not None and max(behind) > FAINT_PERCENT
    return style + PLAIN + Style(reverse=bool(style.reverse) != is_lit)


def _theme(name: str, hues: str, selection: str | None = None, *, dark: bool = True) -> Theme:
    """Build a theme: `hues` belong to `_PARTS`, the last to a list cursor's background; no `selection`: Textual's."""
    *hues_of_parts, cursor = hues.split()
    variables = {"block-cursor-blurred-background": cursor}
    if selection is not None:
        variables["input-selection-background"] = selection
    colours: dict[str, Any] = dict(zip(_PARTS.split(), hues_of_parts, strict=True))
    return Theme(name, dark=dark, variables=variables, **colours)


THEMES: Final = (
    _theme(
        "runwarden",
        "#6cb6ff #b6a4f0 #7fd6c2 #6fcf97 #f0c05a #ff7b72 #dbe2ea #0f1318 #141a21 #1d2530 #1e3145",
        "#6cb6ff 35%",
    ),
    _theme(
        LIGHT,
        "#0b62b8 #6b4fc0 #08705f #12733b #875500 #b8261f #1b2229 #fafbfc #f1f4f7 #e3e9ef #dfeaf6",
        "#0b62b8 25%",
        dark=False,
    ),
    # Okabe and Ito's hues: they stay apart for every kind of colour blindness.
    _theme(
        "runwarden-colour-blind",
        "#56b4e9 #cfcfcf #f0e442 #3cc9a3 #f0e442 #ff8a3d #f2f2f2 #101114 #16181c #23262c #1d3442",
    ),
    _theme(
        "runwarden-contrast", "#7fc8ff #e0c8ff #ffffff #7dff9b #ffe45c #ff8f8f #ffffff #000000 #000000 #2a2a2a #00456b"
    ),
    _theme(
        FEW_COLOURS,
        "#00ffff #00aaaa #00ffff #55ff55 #ffff00 #ff5555 #ffffff #000000 #000000 #000080 #000080",
        "#000080",
    ),
    _theme(
        FEW_LIGHT_COLOURS,
        "#0000aa #000000 #0000aa #000000 #aa00aa #aa0000 #000000 #ffffff #ffffff #aaaaaa #aaaaaa",
        "#aaaaaa",
        dark=False,
    ),
    _theme(
        NO_COLOURS, "#ffffff #ffffff #ffffff #ffffff #ffffff #ffffff #ffffff #000000 #000000 #000000 #ffffff", "#ffffff"
    ),
)


def begin_with_theme(app: "BaseApp[Any]", settings: Settings) -> str:
    """Set the theme that was chosen last, or is configured, before the first frame.

    Returns why the default is used instead; empty: it is not.
    """
    chosen = read_preferences(settings)
    name = settings.console.theme
    if chosen.theme and chosen.configured == name:
        name = chosen.theme
    for theme in THEMES:
        app.register_theme(theme)
    problem = theme_problem(name)
    has_few = app.console.color_system == "standard"
    name = DEFAULT if problem else name
    if has_few:
        name = {DEFAULT: FEW_COLOURS, LIGHT: FEW_LIGHT_COLOURS}.get(name, name)
    # Setting it the ordinary way would parse every style sheet twice before the first frame.
    app.set_reactive(App.theme, NO_COLOURS if app.no_color else name)
    app.stylesheet.set_variables(app.get_css_variables())
    if app.no_color:
        app.own_filter = StyleFilter(_plain)
    elif has_few:
        app.own_filter = StyleFilter(_readable)
    return problem


def theme_problem(name: str) -> str:
    """Why the console cannot use the theme; empty if it can."""
    names = {theme.name for theme in THEMES}
    if name in names:
        return ""
    return f"there is no theme {name!r}. {did_you_mean(name, names)}"


class UserPreferences(Struct, frozen=True):
    """What a user chose for all profiles."""

    theme: str = ""
    """Chosen in the palette. Empty: the configured one."""
    configured: str = ""
    """The configured theme at that time: a theme that is configured later replaces the choice."""
    recent: tuple[str, ...] = ()
    """Choices in the palette, newest first."""
    version: int = _VERSION

    def with_recent(self, name: str) -> "UserPreferences":
        others = (other for other in self.recent if other != name)
        return replace(self, recent=(str(name), *others)[:MAX_RECENT])  # Plain: safe text is not JSON.


def read_preferences(settings: Settings) -> UserPreferences:
    """Read the preferences; defaults if the file is missing, damaged, or of another version."""
    try:
        preferences = msgspec.json.decode((data_root(settings) / _FILE).read_bytes(), type=UserPreferences)
    except (OSError, ValueError):
        return UserPreferences()
    return preferences if preferences.version == _VERSION else UserPreferences()


def keep_preferences(settings: Settings, change: Callable[[UserPreferences], UserPreferences]) -> None:
    """Update the file, in a thread; if it cannot be written, the choice lasts until the console closes."""
    path = data_root(settings) / _FILE
    with suppress(OSError), alone(path.parent):
        before = read_preferences(settings)
        if (after := change(before)) != before:
            with replacing(path) as file:
                file.write(msgspec.json.format(msgspec.json.encode(after), indent=1).decode())
