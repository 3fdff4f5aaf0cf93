"""The health of code hosts: a card for each, its last day as a strip, and the incidents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, Literal, TypeVar

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from app.text import SafeText, safe_text
from app.times import ago, clock_time, span
from storage.records.activity import ANSWERED, FAILED, PollSpan
from widgets.badges import STYLES, Badge
from widgets.cells import fit, shorten
from widgets.frame.freshness import trouble_word

Slice = Literal["well", "impaired", "bad"] | None
"""None: unknown."""

Part = tuple[str, str]
T = TypeVar("T")

_GLYPHS: Final[dict[Slice, str]] = {"well": "━", "impaired": "▄", "bad": "█", None: "·"}
_TONES: Final[dict[Slice, str]] = {
    "well": STYLES["good"],
    "impaired": STYLES["warn"],
    "bad": STYLES["bad"],
    None: STYLES["quiet"],
}


def strip(slices: Sequence[Slice], cells: int, *, is_stale: bool = False) -> list[Part]:
    """The strip, without colours if stale; with fewer cells than slices, neighbours share a cell."""
    folded = fold(slices, cells)
    return [(_GLYPHS[each], STYLES["quiet"] if is_stale else _TONES[each]) for each in folded]


def fold(slices: Sequence[Slice], cells: int) -> tuple[Slice, ...]:
    """Fold equal numbers of slices into one, as bad as the worst of them, until they fit.

    The last one includes the present, so it is known if the present is.
    """
    count = len(slices)
    each = next((size for size in range(1, count + 1) if count % size == 0 and count // size <= cells), count)
    if not count:
        return ()
    *before, last = (slices[start : start + each] for start in range(0, count, each))
    return (*map(_worst, before), _worst(last) or last[-1])


def _worst(group: Sequence[Slice]) -> Slice:
    if "bad" in group:
        return "bad"
    if "impaired" in group:
        return "impaired"
    return "well" if 2 * group.count("well") >= len(group) else None


LABEL: Final = 9
STATE: Final = 24
"""The fewest cells of a state, however long the text behind it is."""
FIGURE: Final = 12
"""Cells of one uptime figure."""
GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Figure:
    """The share of a window in which something was well."""

    window: str
    share: str
    seen: str
    """The share of the window that is known."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card shows."""

    title: str
    badge: Badge
    since: str = ""
    """Follows the state: `for 12m`."""
    fields: tuple[tuple[str, str], ...] = ()
    """Name and value."""
    history: tuple[Slice, ...] = ()
    """The last day in equal slices, oldest first."""
    figures: tuple[Figure, ...] = ()
    warning: str = ""
    """What else deserves attention now."""
    note: str = ""
    """What to do, or what the state does not mean."""
    is_stale: bool = False
    """The facts are old."""


class Card(Static):
    """A card for one thing that can be well or not: state, history and what to do."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 — Textual's word
        super().__init__(id=id, markup=False)
        self._facts: CardFacts | None = None
        self._width = 0

    def show(self, facts: CardFacts) -> None:
        """Show the facts; repaint only if they changed."""
        if facts == self._facts:
            return
        self._facts = facts
        self.border_title = Content(facts.title)
        for tone in ("good", "warn", "bad", "wait"):
            self.set_class(facts.badge.tone == tone and not facts.is_stale, f"-{tone}")
        self.update(card_content(facts, self._width))

    def on_resize(self) -> None:
        """Draw the history for the new width."""
        if self._facts is not None and self.size.width != self._width:
            self._width = self.size.width
            self.update(card_content(self._facts, self._width))


def card_content(facts: CardFacts, width: int) -> Content:
    """The card's text in this width; sentences wrap, facts are shortened."""
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


MOST: Final = 20
"""The most lines; further incidents are counted."""
FACTS: Final = 56
"""Cells before the note."""
_QUIET: Final = STYLES["quiet"]


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """One incident, as a line shows it."""

    badge: Badge
    platform: SafeText
    start: datetime
    seconds: float
    goes_on: bool
    note: str = ""
    """For example that it flapped, or that its end was not observed."""


class HealthList(Static, Generic[T]):
    """The newest of its items, a line each, or a line that says there are none."""

    def __init__(self, draw: Callable[[Sequence[T], str, datetime, int], Content], *, id: str) -> None:  # noqa: A002 — Textual's word
        """Prepare; `draw` makes the lines of the items, or says otherwise, in a width."""
        super().__init__(id=id, markup=False)
        self._draw = draw
        self._items: Sequence[T] = ()
        self._otherwise = ""
        self._now: datetime | None = None
        self._shown: Content | None = None

    def show(self, items: Sequence[T], otherwise: str, now: datetime) -> None:
        """Show the items, newest first; repaint only if they changed."""
        self._items, self._otherwise, self._now = items, otherwise, now
        content = self._draw(items, otherwise, now, self.size.width)
        if self._shown is None or not content.is_same(self._shown):
            self._shown = content
            self.update(content)

    def on_resize(self) -> None:
        """Draw again for the new width."""
        if self._now is not None:
            self.show(self._items, self._otherwise, self._now)


def incident_lines(incidents: Sequence[IncidentFacts], otherwise: str, now: datetime, width: int) -> Content:
    """The lines in this width."""
    if not incidents:
        return Content.styled(otherwise, _QUIET)
    lines = [_line(incident, now, width) for incident in incidents[:MOST]]
    if len(incidents) > MOST:
        lines.append(Content.styled(f"and {len(incidents) - MOST} older ones", _QUIET))
    return Content("\n").join(lines)


def _line(incident: IncidentFacts, now: datetime, width: int) -> Content:
    style = f"{incident.badge.style} bold" if incident.goes_on else incident.badge.style
    lasted = f"{span(incident.seconds)} so far" if incident.goes_on else span(incident.seconds)
    return Content.assemble(
        (fit(incident.badge.text, 16) + " ", style),
        (fit(incident.platform, 10) + " ", "bold" if incident.goes_on else ""),
        (f"{clock_time(incident.start, now):<14}", _QUIET),
        (f"{lasted:<14}", "bold" if incident.goes_on else ""),
        (shorten(incident.note, max(0, width - FACTS)), _QUIET),
    )


MOST_POLLS: Final = 100
SHORTEST_S: Final = 60
"""The shortest span of polls whose length is shown."""
BEFORE_POLLS: Final = 42
"""Cells of a line before how often it was asked."""
_ANSWERED: Final = Badge("✓", ANSWERED, "good")
_FAILED: Final = Badge("✗", FAILED, "bad")


def poll_lines(polls: Sequence[PollSpan], otherwise: str, now: datetime, width: int) -> Content:
    """Consecutive polls with the same outcome are one line."""
    lines = [_poll_line(poll, now, width) for poll in polls[:MOST_POLLS]]
    return Content("\n").join(lines) if lines else Content.styled(otherwise, _QUIET)


def _poll_line(poll: PollSpan, now: datetime, width: int) -> Content:
    badge = _ANSWERED if poll.error_kind is None else _FAILED
    said = "  ".join(filter(None, (_polls(poll, now), safe_text(poll.error_message or "", limit=200))))
    return Content.assemble(
        (fit(badge.text, 16) + " ", badge.style),
        (fit(safe_text(poll.subject, limit=10), 10) + " ", ""),
        (f"{clock_time(poll.first_at, now):<14}", _QUIET),
        (shorten(safe_text(said, limit=300), max(0, width - BEFORE_POLLS)), "" if poll.error_kind else _QUIET),
    )


def _polls(poll: PollSpan, now: datetime) -> SafeText:
    if poll.polls == 1:
        return safe_text("once" if poll.error_kind is None else trouble_word(poll.error_kind))
    lasted_s = (poll.last_at - poll.first_at).total_seconds()
    over = f" in {span(lasted_s)}" if lasted_s >= SHORTEST_S else ""
    said = trouble_word(poll.error_kind) if poll.error_kind is not None else f"last {ago(poll.last_at, now)}"
    return safe_text(f"{poll.polls:,} times{over}, {said}")
