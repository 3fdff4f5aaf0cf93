"""The health of code hosts and of our link: a row for each, its last day as a strip, and the incidents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from textwrap import wrap
from typing import Final, Literal

from rich.cells import cell_len

from app.text import SafeText, safe_text
from app.times import ago, clock_time, span
from storage.records.activity import ANSWERED, FAILED, PollSpan
from widgets.badges import Badge, Tone
from widgets.cells import fit
from widgets.frame.freshness import trouble_word
from widgets.line_table import Block, Ink, Piece, Pieces, apart

Slice = Literal["well", "impaired", "bad"] | None
"""None: unknown."""

_GLYPHS: Final[dict[Slice, str]] = {"well": "━", "impaired": "▄", "bad": "█", None: "·"}
_TONES: Final[dict[Slice, Tone]] = {"well": "good", "impaired": "warn", "bad": "bad", None: "quiet"}
WIDE: Final = 100
TITLE: Final = 12
STATE: Final = 22
NARROW_STATE: Final = 16
"""Cells of a row's name and state."""
LABEL: Final = 9
GAP: Final = 2


def strip(slices: Sequence[Slice], cells: int) -> tuple[Slice, ...]:
    """The slices drawn on exactly `cells` cells: neighbours that share one are as bad as the worst of them.

    The last one includes the present, so it is known if the present is.
    """
    count = len(slices)
    if not count:
        return ()
    groups = [
        slices[at * count // cells : max(at * count // cells + 1, (at + 1) * count // cells)] for at in range(cells)
    ]
    *before, last = groups or [slices]
    return (*map(_worst, before), _worst(last) or last[-1])


def _worst(group: Sequence[Slice]) -> Slice:
    if "bad" in group:
        return "bad"
    if "impaired" in group:
        return "impaired"
    return "well" if 2 * group.count("well") >= len(group) else None


@dataclass(frozen=True, slots=True)
class HealthShare:
    """The share of a window in which something was well."""

    window: str
    """The window's name; empty: too little of it was observed."""
    share: str
    seen: str
    """How much of the window was observed."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A row about something that can be well or not: a code host, our link, the token."""

    key: str
    """Empty: the cursor skips it."""
    title: str
    badge: Badge
    since: str = ""
    """The text after the state: `for 12m`."""
    location: str = ""
    under_way: tuple[tuple[Badge, int], ...] = ()
    """Its active runs by status."""
    history: tuple[Slice, ...] = ()
    """The last day in equal slices, oldest first."""
    figures: tuple[HealthShare, ...] = ()
    warning: str = ""
    """A problem besides the state; empty: none."""
    note: str = ""
    """The cure, or what the state does not mean."""
    is_stale: bool = False
    """Whether the facts are old."""
    leads: bool = False


def host_block(facts: HostFacts, width: int) -> Block:
    """The row in this width; sentences wrap, facts are shortened."""
    tone: Ink = "quiet" if facts.is_stale else facts.badge.tone
    state = fit(facts.badge.text, max(cell_len(facts.badge.text) + GAP, _state_cells(width)))
    under_way = _under_way(facts.under_way)
    room = width - TITLE - cell_len(state) - sum(cell_len(text) for text, _ in under_way)
    both = "  ".join(filter(None, (facts.since, facts.location)))
    said = next((one for one in (both, facts.since) if cell_len(one) <= room), facts.since.partition(" · ")[0])
    head: list[Piece] = [(_name(facts.title), "strong"), (state, tone), (said, "quiet")]
    is_roomy = cell_len(said) <= room
    lines = [apart(head, under_way if is_roomy else (), width)]
    lines += [((line, "quiet"),) for line in wrap(facts.location, width) if said != both]
    if not is_roomy:
        lines.append(tuple(under_way))
    if any(facts.history):
        lines.append(_history(facts, width))
    if facts.figures or facts.warning:
        lines.append(_figures(facts))
    note_tone: Ink = "plain" if facts.badge.tone == "bad" and not facts.is_stale else "quiet"
    lines += [((line, note_tone),) for note in facts.note.splitlines() for line in wrap(note, max(20, width))]
    return Block(tuple(lines), facts.key, leads=facts.leads)


def _name(text: str) -> str:
    return f"{fit(text, TITLE - 1)} "


def _state_cells(width: int) -> int:
    return STATE if width >= WIDE else NARROW_STATE


def _under_way(counts: Sequence[tuple[Badge, int]]) -> list[Piece]:
    if not counts:
        return []
    some: list[Piece] = [(f"  {badge.glyph} {count:,} {badge.word}", badge.tone) for badge, count in counts if count]
    return some or [("  nothing under way", "quiet")]


def _history(facts: HostFacts, width: int) -> Pieces:
    cells = strip(facts.history, max(1, width - LABEL - len("  now")))
    drawn = [
        (_GLYPHS[one] * len(list(same)), "quiet" if facts.is_stale else _TONES[one]) for one, same in groupby(cells)
    ]
    return ((f"{'24h ago':<{LABEL}}", "quiet"), *drawn, ("  now", "quiet"))


def _figures(facts: HostFacts) -> Pieces:
    pieces: list[Piece] = [(f"{'uptime':<{LABEL}}", "quiet")] if facts.figures else []
    for figure in facts.figures:
        window = f"{figure.window} " if figure.window else ""
        pieces += [(window, "quiet"), (f"{figure.share} ", "plain"), (f"of {figure.seen} seen   ", "quiet")]
    if facts.warning:
        pieces.append((facts.warning, "quiet" if facts.is_stale else "warn"))
    return tuple(pieces)


MOST: Final = 20
"""The most lines; further incidents are counted."""


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """One incident, as a line shows it."""

    key: str
    badge: Badge
    platform: SafeText
    start: datetime
    seconds: float
    goes_on: bool
    failed: int = 0
    """Runs on its platform that failed from its start to its end."""
    note: str = ""
    """For example that it flapped, or that its end was not observed."""


BLANK: Final = Block(((),))


def titled(title: str, blocks: Sequence[Block], otherwise: str) -> Iterator[Block]:
    """A title, its rows and a blank line; without rows, the remark instead."""
    yield Block((((title, "title"),),))
    yield from blocks or (Block((((otherwise, "quiet"),),)),)
    yield BLANK


def incident_blocks(incidents: Sequence[IncidentFacts], now: datetime, width: int) -> Iterator[Block]:
    """The incidents, a line each."""
    for incident in incidents[:MOST]:
        yield Block((_incident(incident, now, width),), incident.key, leads=True)
    if len(incidents) > MOST:
        yield Block((((f"and {len(incidents) - MOST} older ones", "quiet"),),))


def _incident(incident: IncidentFacts, now: datetime, width: int) -> Pieces:
    lasted = f"{span(incident.seconds)} so far" if incident.goes_on else span(incident.seconds)
    failed: Piece = (f"{incident.failed:,} failed", "bad") if incident.failed else ("none failed", "quiet")
    return (
        (_name(incident.platform), "strong" if incident.goes_on else "plain"),
        (fit(incident.badge.text, _state_cells(width)), incident.badge.tone),
        (f"{clock_time(incident.start, now):<14}", "quiet"),
        (f"{lasted:<14}", "strong" if incident.goes_on else "plain"),
        (fit(failed[0], LABEL + 4), failed[1]),
        (f" {incident.note}", "quiet"),
    )


MOST_POLLS: Final = 100
SHORTEST_S: Final = 60
"""The shortest span of polls whose length is shown."""
_ANSWERED: Final = Badge("✓", ANSWERED, "good")
_FAILED: Final = Badge("✗", FAILED, "bad")


def poll_blocks(polls: Sequence[PollSpan], now: datetime, width: int) -> Iterator[Block]:
    """Consecutive polls with the same outcome are one line."""
    for poll in polls[:MOST_POLLS]:
        badge = _ANSWERED if poll.error_kind is None else _FAILED
        said = "  ".join(filter(None, (_polls(poll, now), safe_text(poll.error_message or "", limit=200))))
        line: Pieces = (
            (_name(safe_text(poll.subject, limit=10)), "plain"),
            (fit(badge.text, _state_cells(width)), badge.tone),
            (f"{clock_time(poll.first_at, now):<14}", "quiet"),
            (safe_text(said, limit=300), "plain" if poll.error_kind else "quiet"),
        )
        yield Block((line,), f"poll:{poll.span_id}")


def _polls(poll: PollSpan, now: datetime) -> SafeText:
    if poll.polls == 1:
        return safe_text("once" if poll.error_kind is None else trouble_word(poll.error_kind))
    lasted_s = (poll.last_at - poll.first_at).total_seconds()
    over = f" in {span(lasted_s)}" if lasted_s >= SHORTEST_S else ""
    said = trouble_word(poll.error_kind) if poll.error_kind is not None else f"last {ago(poll.last_at, now)}"
    return safe_text(f"{poll.polls:,} times{over}, {said}")
