"""A card for one thing that can be well or not: its state, since when, its history, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from widgets.badges import STYLES, Badge
from widgets.cells import shorten
from widgets.health.uptime_strip import Slice, fold, strip

LABEL: Final = 9
STATE: Final = 24
"""Cells that a state has at least, however long what stands behind it is."""
FIGURE: Final = 12
"""Cells of one uptime figure."""
GAP: Final = 2
_QUIET: Final = STYLES["quiet"]

Part = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Figure:
    """How much of a window something was well."""

    window: str
    share: str
    seen: str
    """How much of the window is known."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says."""

    title: str
    badge: Badge
    since: str = ""
    """Behind the state: `for 12m`."""
    fields: tuple[tuple[str, str], ...] = ()
    """Name and value."""
    history: tuple[Slice, ...] = ()
    """The last day in equal slices, oldest first."""
    figures: tuple[Figure, ...] = ()
    warning: str = ""
    """What else is remarkable now."""
    note: str = ""
    """What to do, or what this does not mean."""
    is_stale: bool = False
    """What it says was true once."""


class Card(Static):
    """One card."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id, markup=False)
        self._facts: CardFacts | None = None
        self._width = 0

    def show(self, facts: CardFacts) -> None:
        """Takes the facts; paints only if they read differently."""
        if facts == self._facts:
            return
        self._facts = facts
        self.border_title = Content(facts.title)
        for tone in ("good", "warn", "bad", "wait"):
            self.set_class(facts.badge.tone == tone and not facts.is_stale, f"-{tone}")
        self.update(card_content(facts, self._width))

    def on_resize(self) -> None:
        """Draws the history for the new width."""
        if self._facts is not None and self.size.width != self._width:
            self._width = self.size.width
            self.update(card_content(self._facts, self._width))


def card_content(facts: CardFacts, width: int) -> Content:
    """The card's text, in so many cells; sentences wrap, facts are shortened."""
    state_style = _QUIET if facts.is_stale else f"{facts.badge.style} bold"
    state = shorten(facts.badge.text, max(STATE, width - cell_len(facts.since) - GAP))
    parts: list[Part] = [(state, state_style), (" " * GAP, ""), (facts.since, _QUIET)]
    if facts.warning:
        parts += [("\n", ""), (facts.warning, _QUIET if facts.is_stale else STYLES["warn"])]
    for name, value in facts.fields:
        parts += [(f"\n{name:<{LABEL}}", _QUIET), (shorten(value, max(STATE, width - LABEL), "middle"), "")]
    parts += _history(facts, width)
    parts += _figures(facts.figures)
    if facts.note:
        parts += [(f"\n{facts.note}", "" if facts.badge.tone == "bad" and not facts.is_stale else _QUIET)]
    return Content.assemble(*parts)


def _history(facts: CardFacts, width: int) -> list[Part]:
    room = width - LABEL - len("  now")
    if not facts.history or not fold(facts.history, room):
        return []
    drawn = strip(facts.history, room, is_stale=facts.is_stale)
    return [(f"\n{'24h ago':<{LABEL}}", _QUIET), *drawn, ("  now", _QUIET)]


def _figures(figures: Sequence[Figure]) -> list[Part]:
    if not figures:
        return []
    parts: list[Part] = [(f"\n{'uptime':<{LABEL}}", _QUIET)]
    for figure in figures:
        parts += [(f"{figure.window} ", _QUIET), (f"{figure.share:<{FIGURE - len(figure.window) - 1}}", "")]
    parts.append((f"\n{'seen':<{LABEL}}", _QUIET))
    return [*parts, ("".join(f"{figure.seen:<{FIGURE}}" for figure in figures).rstrip(), _QUIET)]
