"""Statuses as glyph, word and tone: never by colour alone, and the same on every screen."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from textual.content import Content
from textual.widget import Widget

from app.engine.text import safe_text
from app.health.facts import HealthLevel, level
from storage.records import STATUS_BY_NAME, ActionState, Tone
from widgets.kit.cells import shorten

__all__ = ["ACTION_BADGES", "STYLES", "Badge", "ProfileMark", "StyledText", "Tone", "health_badge", "run_badge"]


STYLES: Final[dict[Tone, str]] = {
    "good": "$success",
    "bad": "$error",
    "busy": "$primary",
    "wait": "$secondary",
    "warn": "$warning",
    "plain": "$foreground",
    "quiet": "$foreground 70%",
}
"""A tone as a style of Textual's Content, in the theme's own colours."""


def tone_css(widget: str, prefix: str) -> str:
    """The CSS rules that colour a widget's component classes, one class per tone."""
    return "\n".join(f"{widget} > .{prefix}--{tone} {{ color: {style}; }}" for tone, style in STYLES.items())


HUES: Final = {"red": "#b3304a", "green": "#2a7d4f", "blue": "#2f66b5", "yellow": "#8a6a00", "purple": "#7d4bb8"}
"""The grounds of profiles' names, which are white on them: no status is drawn like that."""

StyledText = tuple[str, str]


class ProfileMark(Struct, frozen=True):
    """A profile's name in its colour."""

    name: str
    color: str = ""

    def styled(self, cells: int = 28) -> StyledText:
        """The name, shortened to this many cells, on its colour."""
        name = shorten(safe_text(self.name, limit=60), cells, "middle")
        return (f" {name} ", f"bold #ffffff on {HUES[self.color]}") if self.color else (name, "bold")

    def entitle(self, box: Widget, title: str) -> None:
        """Give a box this title, and if the profile has a colour, its name, and the colour as the border's."""
        box.border_title = Content.assemble(title, "  ", self.styled()) if self.color else Content(title)
        if self.color:
            box.styles.border = "round", HUES[self.color]


NO_MARK: Final = ProfileMark("")


class Badge(Struct, frozen=True):
    """How a status is drawn."""

    glyph: str
    """One cell wide."""
    word: str
    tone: Tone

    @property
    def text(self) -> str:
        return f"{self.glyph} {self.word}"

    @property
    def style(self) -> str:
        return STYLES[self.tone]


_HEALTH: Final[dict[HealthLevel | None, tuple[str, Tone]]] = {
    "well": ("✓", "good"),
    "impaired": ("▲", "warn"),
    "bad": ("✗", "bad"),
    None: ("?", "warn"),
}

ACTION_BADGES: Final[dict[ActionState, Badge]] = {
    "prepared": Badge("◌", "prepared", "wait"),
    "sending": Badge("●", "sending", "busy"),
    "confirmed": Badge("✓", "confirmed", "good"),
    "rejected": Badge("✗", "rejected", "bad"),
    "unknown": Badge("?", "unknown", "warn"),
    "not_sent": Badge("◌", "not sent", "quiet"),
    "not_created": Badge("⊘", "not created", "quiet"),
}


def run_badge(status: str, *, is_final: bool = False) -> Badge:
    """A run's status; one that the spec does not name is shown as received, more quietly if it is final."""
    if (fact := STATUS_BY_NAME.get(status)) is not None:
        return Badge(fact.glyph, fact.name, fact.tone)
    word = safe_text(status, limit=40) or "no status"
    return Badge("◇", word, "plain") if is_final else Badge("◆", word, "warn")


def health_badge(status: str, healthy_words: Collection[str]) -> Badge:
    glyph, tone = _HEALTH[level(status, healthy_words)]
    return Badge(glyph, safe_text(status, limit=40), tone)
