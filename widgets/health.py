"""The rows of the Health tab: hosts, link and token with their history, then incidents and polls."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

from msgspec import Struct
from textual.content import Content

from app.engine.text import safe_text
from app.engine.times import clock_time, roughly_ago, span
from app.health.facts import HealthLevel, Incident
from storage.records.activity import PollSpan
from storage.records.error_kinds import error_kind
from widgets.kit.badges import STYLES, Badge, StyledText, Tone, health_badge
from widgets.kit.cells import fit, shorten
from widgets.kit.choice_lists import LeadRow

Slice = HealthLevel | None
"""None: unknown."""
_GLYPHS: Final[dict[Slice, str]] = {"well": "━", "impaired": "▂▄▆", "bad": "▎▌█", None: "·"}
"""The glyphs for up to a third of the cell's time, up to two thirds, and more."""
_TONES: Final[dict[Slice, Tone]] = {"well": "good", "impaired": "warn", "bad": "bad", None: "quiet"}
TITLE: Final = 12
STATE: Final = 18
"""Widths of a row's name and state."""
LABEL: Final = 9
_QUIET: Final = STYLES["quiet"]
BLANK: Final = LeadRow(Content())


def strip(slices: Sequence[Slice], cells: int) -> tuple[tuple[Slice, str], ...]:
    """Fit the slices into `cells` cells. A cell shows the worst of its slices, and by its glyph their share.

    The last slice is the present and has the last cell to itself.
    """
    *past, present = slices or (None,)
    if not slices:
        return ()
    count = len(past)
    cells = cells - 1
    starts = [at * count // cells for at in range(cells)]
    drawn: list[tuple[Slice, str]] = []
    for start, end in zip(starts, [*starts[1:], count], strict=False):
        group = past[start : max(start + 1, end)]
        well: Slice = "well" if 2 * group.count("well") >= len(group) else None
        worst: Slice = well
        if "bad" in group:
            worst = "bad"
        elif "impaired" in group:
            worst = "impaired"
        glyphs = _GLYPHS[worst]
        drawn.append((worst, glyphs[max(0, len(glyphs) * group.count(worst) - 1) // len(group)]))
    return (*drawn, (present, _GLYPHS[present][-1]))


class HostFacts(Struct, frozen=True):
    """The state of a code host, our link or the token."""

    key: str
    """Empty: the cursor skips it."""
    title: str
    badge: Badge
    since: str = ""
    """The text after the state: `for 12m`."""
    about: str = ""
    """The host's address, or the state of the link's polls."""
    under_way: tuple[tuple[Badge, int], ...] = ()
    history: tuple[Slice, ...] = ()
    """The last day in equal slices, oldest first."""
    uptime: tuple[str, ...] = ()
    warning: str = ""
    note: str = ""
    """The fix, or an explanation of the state."""
    is_stale: bool = False
    leads: bool = False

    def row(self, width: int) -> LeadRow:
        badge = self.badge
        style = _QUIET if self.is_stale else self.badge.style
        state = fit(f"{badge.text}  ", max(STATE, len(badge.text) + 2))
        lines = [Content.assemble((_name(self.title), "bold"), (state, style), (self.since, _QUIET))]
        counts = [(f"{figure.glyph} {n:,} {figure.word}  ", figure.style) for figure, n in self.under_way if n]
        if self.under_way or self.about:
            idle = [("nothing under way  ", _QUIET)] if self.under_way else []
            lines.append(Content.assemble(*(counts or idle), (self.about, _QUIET)))
        if any(self.history):
            drawn = [
                (glyph * len(list(same)), _QUIET if self.is_stale else STYLES[_TONES[level]])
                for (level, glyph), same in groupby(strip(self.history, max(1, width - LABEL - len("  now"))))
            ]
            lines.append(Content.assemble((f"{'24h ago':<{LABEL}}", _QUIET), *drawn, ("  now", _QUIET)))
        if self.uptime or self.warning:
            warning = (self.warning, _QUIET if self.is_stale else STYLES["warn"])
            label = f"{'uptime':<{LABEL}}" if self.uptime else ""
            lines.append(Content.assemble((label, _QUIET), "".join(f"{figure}   " for figure in self.uptime), warning))
        is_loud = badge.tone == "bad" and not self.is_stale
        lines += [Content.styled(note, "$foreground" if is_loud else _QUIET) for note in self.note.splitlines()]
        return LeadRow(Content("\n").join(lines), self.key, self.leads)


def incident_row(
    incident: Incident, failed: int | None, healthy_words: frozenset[str], now: datetime, key: str
) -> LeadRow:
    """An incident with the number of runs that failed during it; None for our link, which makes no runs fail."""
    badge = health_badge(incident.word, healthy_words)
    lasted = span(incident.lasted.total_seconds())
    is_ongoing = incident.is_ongoing
    count = ""
    if failed is not None:
        count = f"{failed:,} failed" if failed else "none failed"
    others = ", ".join(safe_text(word, limit=30) for word in incident.words[1:4])
    remarks = [f"also {others}"] if others else []
    remarks += [f"flapped {incident.recoveries}x"] if incident.recoveries else []
    if incident.recovered_at is None and incident.is_over:
        remarks.append("then no longer connected")
    elif incident.recovered_at is not None and incident.recovered_at > incident.until:
        remarks.append("its recovery was not observed")
    line: tuple[StyledText, ...] = (
        (_name(safe_text(incident.platform, limit=30)), "bold" if is_ongoing else ""),
        (fit(badge.text, STATE), badge.style),
        (f"{clock_time(incident.start, now):<14}", _QUIET),
        (f"{f'{lasted} so far' if is_ongoing else lasted:<14}", "bold" if is_ongoing else ""),
        (fit(count, LABEL + 4), STYLES["bad" if failed else "quiet"]),
        (f" {', '.join(remarks)}", _QUIET),
    )
    return LeadRow(Content.assemble(*line), key, leads=failed is not None)


def poll_row(poll: PollSpan, now: datetime, width: int) -> LeadRow:
    badge = Badge("✓", "answered", "good") if poll.error_kind is None else Badge("✗", "failed", "bad")
    kind = None
    if poll.error_kind is not None:
        kind = error_kind(poll.error_kind).word
    lasted_s = (poll.last_at - poll.first_at).total_seconds()
    over = f" in {span(lasted_s)}" if lasted_s >= 60 else ""
    often = f"{poll.polls:,} times{over}, {kind or f'last {roughly_ago(poll.last_at, now)}'}"
    times = safe_text(kind or "once") if poll.polls == 1 else safe_text(often)
    words = "  ".join(filter(None, (times, safe_text(poll.error_message or "", limit=200))))
    line: tuple[StyledText, ...] = (
        (_name(safe_text(poll.subject, limit=10)), ""),
        (fit(badge.text, STATE), badge.style),
        (f"{clock_time(poll.first_at, now):<14}", _QUIET),
        (shorten(words, max(1, width - TITLE - STATE - 14)), "" if poll.error_kind else _QUIET),
    )
    return LeadRow(Content.assemble(*line), f"poll:{poll.span_id}")


def titled_section(title: str, rows: Sequence[LeadRow], otherwise: str) -> Iterator[LeadRow]:
    """A title, its rows and a blank line; `otherwise` replaces missing rows."""
    yield LeadRow(Content.styled(title, f"{_QUIET} bold"))
    yield from rows or (LeadRow(Content.styled(otherwise, _QUIET)),)
    yield BLANK


def _name(text: str) -> str:
    return f"{fit(text, TITLE - 1)} "
