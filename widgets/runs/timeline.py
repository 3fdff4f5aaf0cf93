"""A run's observed statuses over time, drawn to scale."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from textual.content import Content

from app.times import clock_time, span
from storage.records import STATUS_BY_NAME, RunDetail
from widgets.badges import STYLES, Badge, run_badge
from widgets.cells import shorten
from widgets.runs.facts import RunView

LABEL: Final = 13
"""Cells of a status."""
SPAN: Final = 8
"""Cells of a duration."""
BAR_LEAST: Final = 8
"""The fewest cells of a bar."""
BAR_MOST: Final = 64
UNOBSERVED: Final = "·"
OTHER: Final = "▒"
"""The fill of a status that the spec does not name."""
RESTING: Final = "┈"
"""The fill of the time between a final status and the next turn."""
QUIET: Final = STYLES["quiet"]


@dataclass(frozen=True, slots=True)
class Period:
    """A time spent in one status."""

    status: str | None
    """None: before the run was first observed."""
    start: datetime
    seconds: float | None
    """None: a final status, which takes no time."""
    goes_on: bool = False
    """Whether the period is not over: then `seconds` is as of now."""
    is_final: bool = False
    """Whether the status is final, at the end or between two turns."""

    @property
    def badge(self) -> Badge | None:
        """The badge of the status. None: the time before the first observation."""
        return None if self.status is None else run_badge(self.status, is_final=self.is_final)


def periods(detail: RunDetail, now: datetime) -> tuple[Period, ...]:
    """The run's periods, oldest first."""
    moves, finals = detail.transitions, detail.final_statuses
    if not moves:
        return (_last(detail.run.status, detail.run.created_at or detail.first_seen_at, now, finals),)
    found: list[Period] = []
    first, created = moves[0], detail.run.created_at
    # A run first seen as queued was queued since its creation.
    start = created if created is not None and first.new == "queued" else first.at
    if created is not None and start > created:
        found.append(Period(None, created, (start - created).total_seconds()))
    for move, following in pairwise(moves):
        seconds = max(0.0, (following.at - start).total_seconds())
        found.append(Period(move.new, start, seconds, is_final=move.new in finals))
        start = following.at
    return (*found, _last(moves[-1].new, start, now, finals))


def _last(status: str, start: datetime, now: datetime, finals: Collection[str]) -> Period:
    if status in finals:
        return Period(status, start, None, is_final=True)
    return Period(status, start, max(0.0, (now - start).total_seconds()), goes_on=True)


def timeline(view: RunView, now: datetime, as_of: datetime, width: int) -> list[Content]:
    """The observed periods, drawn to scale."""
    seen = periods(view.detail, as_of)
    begin = seen[0].start
    took_s = max(_end_s(period, begin) for period in seen)
    whole_s = max(1.0, took_s)
    times = max(len(clock_time(period.start, now)) for period in seen) + 1
    room = width - LABEL - times - SPAN - 1
    bar = min(BAR_MOST, room) if room >= BAR_LEAST else 0
    lines = [_line(period, now, times, _bar_cells(period, begin, whole_s, bar)) for period in seen]
    if len(seen) > 1:
        lines.append(_whole(seen, times, took_s, bar))
    return lines


def timeline_in_brief(view: RunView, as_of: datetime) -> Content:
    """The timeline on one line: `queued 12s ▸ working 25s ▸ failed`, with the reason if it is known."""
    parts: list[tuple[str, str]] = []
    for period in periods(view.detail, as_of):
        if parts:
            parts.append((" ▸ ", QUIET))
        badge = period.badge
        end = "" if period.seconds is None else " "
        parts.append((f"{badge.word if badge else 'unobserved'}{end}", badge.style if badge else QUIET))
        parts.append((span(period.seconds) if period.seconds is not None else "", ""))
    if view.reason:
        parts.append((f": {view.reason}", ""))
    return Content.assemble(*parts)


def _line(period: Period, now: datetime, times: int, bar_cells: tuple[int, int]) -> Content:
    badge = period.badge
    word = badge.text if badge else "· unobserved"
    style = badge.style if badge else QUIET
    before, cells = bar_cells
    took = span(period.seconds) if period.seconds is not None else ""
    bar = _bar(period, cells)
    return Content.assemble(
        (f"{shorten(word, LABEL - 1):<{LABEL}}", style),
        (f"{clock_time(period.start, now):<{times}}", QUIET),
        (f"{took:>{SPAN - 1}} ", ""),
        (" " * before + bar if cells else "", style),
    )


def _bar(period: Period, cells: int) -> str:
    if period.seconds is None:
        return "◆"
    known = STATUS_BY_NAME.get(period.status or "")
    fill = RESTING if period.is_final else known.fill if known else OTHER if period.status else UNOBSERVED
    return fill * cells + ("▸" if period.goes_on else "")


def _whole(seen: tuple[Period, ...], times: int, took_s: float, bar: int) -> Content:
    ended = "so far" if seen[-1].goes_on else "in all"
    scale = f"└{'─' * max(0, bar - 2)}┘" if bar else ""
    return Content.assemble(
        (f"{ended:<{LABEL + times}}", QUIET), (f"{span(took_s):>{SPAN - 1}} ", "bold"), (scale, QUIET)
    )


def _bar_cells(period: Period, begin: datetime, whole_s: float, bar: int) -> tuple[int, int]:
    """The cells before a period's bar, and of the bar itself: at least one, and never beyond the end."""
    if not bar:
        return 0, 0
    start = round(bar * (period.start - begin).total_seconds() / whole_s)
    cells = max(1, round(bar * (period.seconds or 0.0) / whole_s))
    return min(start, bar - 1), min(cells, max(1, bar - min(start, bar - 1)))


def _end_s(period: Period, begin: datetime) -> float:
    return (period.start - begin).total_seconds() + (period.seconds or 0.0)
