"""A run's observed life, drawn to scale: a line for each stretch, each bar where its time was."""

from datetime import datetime
from typing import Final

from textual.content import Content

from storage.records import FINAL_STATUSES
from widgets.badges import STYLES, run_badge
from widgets.cells import shorten
from widgets.runs.timeline import Stretch, stretches
from widgets.runs.view import RunView
from widgets.times import clock_time, span

LABEL: Final = 13
"""Cells of a status."""
SPAN: Final = 8
"""Cells of a duration."""
BAR_LEAST: Final = 8
"""With fewer cells a bar would say nothing."""
BAR_MOST: Final = 64
FILLS: Final = {"queued": "░", "working": "━", "": "·"}
"""What a status is drawn with, so that it can be told without its colour; the empty one is a time nobody looked."""
OTHER: Final = "▒"
RESTING: Final = "┈"
"""Between an end and the turn that followed."""

QUIET: Final = STYLES["quiet"]


def timeline(view: RunView, now: datetime, as_of: datetime, width: int) -> list[Content]:
    """What was observed of the run, to scale."""
    seen = stretches(view.detail, as_of)
    begin = seen[0].start
    whole_s = max(1.0, max((_end_s(stretch, begin) for stretch in seen), default=1.0))
    times = max(len(clock_time(stretch.start, now)) for stretch in seen) + 1
    room = width - LABEL - times - SPAN - 1
    bar = min(BAR_MOST, room) if room >= BAR_LEAST else 0
    lines = [_line(stretch, now, times, _place(stretch, begin, whole_s, bar)) for stretch in seen]
    if len(seen) > 1:
        lines.append(_whole(seen, times, whole_s, bar))
    return lines


def timeline_in_brief(view: RunView, as_of: datetime) -> Content:
    """The timeline on one line: `queued 12s ▸ working 25s ▸ failed`."""
    parts: list[tuple[str, str]] = []
    for stretch in stretches(view.detail, as_of):
        if parts:
            parts.append((" ▸ ", QUIET))
        badge = run_badge(stretch.status) if stretch.status is not None else None
        end = "" if stretch.seconds is None else " "
        parts.append((f"{badge.word if badge else 'unobserved'}{end}", badge.style if badge else QUIET))
        parts.append((span(stretch.seconds) if stretch.seconds is not None else "", ""))
    return Content.assemble(*parts)


def _line(stretch: Stretch, now: datetime, times: int, place: tuple[int, int]) -> Content:
    badge = run_badge(stretch.status) if stretch.status is not None else None
    word = badge.text if badge else "· unobserved"
    style = badge.style if badge else QUIET
    before, cells = place
    took = span(stretch.seconds) if stretch.seconds is not None else ""
    bar = _bar(stretch, cells)
    return Content.assemble(
        (f"{shorten(word, LABEL - 1):<{LABEL}}", style),
        (f"{clock_time(stretch.start, now):<{times}}", QUIET),
        (f"{took:>{SPAN - 1}} ", ""),
        (" " * before + bar if cells else "", style),
    )


def _bar(stretch: Stretch, cells: int) -> str:
    if stretch.seconds is None:
        return "◆"
    fill = RESTING if stretch.status in FINAL_STATUSES else FILLS.get(stretch.status or "", OTHER)
    return fill * cells + ("▸" if stretch.goes_on else "")


def _whole(seen: tuple[Stretch, ...], times: int, whole_s: float, bar: int) -> Content:
    ended = "so far" if seen[-1].goes_on else "in all"
    scale = f"└{'─' * max(0, bar - 2)}┘" if bar else ""
    return Content.assemble(
        (f"{ended:<{LABEL + times}}", QUIET), (f"{span(whole_s):>{SPAN - 1}} ", "bold"), (scale, QUIET)
    )


def _place(stretch: Stretch, begin: datetime, whole_s: float, bar: int) -> tuple[int, int]:
    """The cells before a stretch's bar, and those of the bar itself: at least one, and never beyond the end."""
    if not bar:
        return 0, 0
    start = round(bar * (stretch.start - begin).total_seconds() / whole_s)
    cells = max(1, round(bar * (stretch.seconds or 0.0) / whole_s))
    return min(start, bar - 1), min(cells, max(1, bar - min(start, bar - 1)))


def _end_s(stretch: Stretch, begin: datetime) -> float:
    return (stretch.start - begin).total_seconds() + (stretch.seconds or 0.0)
