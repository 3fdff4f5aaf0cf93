"""Figures as people read them; pure functions."""

from datetime import datetime
from typing import Final

from storage.records.insights import RepositoryFigures
from widgets.badges import Badge
from widgets.insights.view import InsightsView, Step
from widgets.times import day, span

COMPLETED: Final = Badge("█", "completed", "good")
FAILED: Final = Badge("x", "failed", "bad")
UNFINISHED: Final = Badge("░", "not finished", "busy")
UNKNOWN: Final = Badge("·", "not known", "quiet")
"""Each with a shape of its own: colour only repeats what the shape says."""
NOTHING: Final = "-"


def share(part: float | None) -> str:
    """A part of one as whole per cent; never 0% or 100% for what is only nearly so."""
    if part is None:
        return NOTHING
    if 0 < part < 1:
        return f"{min(99, max(1, round(part * 100)))}%"
    return f"{part:.0%}"


def seconds(value_s: float | None) -> str:
    """A duration."""
    return NOTHING if value_s is None else span(value_s)


def started(at: datetime, step: Step) -> str:
    """The beginning of a stretch: `14:00`, or `Mon 4 May`."""
    local = at.astimezone()
    return f"{local:%H:%M}" if step == "hour" else f"{local:%a} {local.day} {local:%b}"


def tick(at: datetime, step: Step, *, is_short: bool) -> str:
    """The beginning of a stretch, below its bar: `14h`, `4` or `4 May`."""
    local = at.astimezone()
    if step == "hour":
        return f"{local:%H}h" if is_short else f"{local:%H:%M}"
    return str(local.day) if is_short else f"{local.day} {local:%b}"


def extent(view: InsightsView) -> str:
    """How many runs, since when, and how much of it is known: `1,204 runs since 1 May · complete`."""
    runs = "1 run" if view.runs == 1 else f"{view.runs:,} runs"
    since = day(view.since, view.at) if view.step == "day" else f"{view.since.astimezone():%H:%M} yesterday"
    return f"{runs} since {since} · {known(view)}"


def known(view: InsightsView) -> str:
    """How much of the stretch is held: `complete`, or since when it is."""
    if view.is_complete:
        return "complete"
    complete_since = view.coverage.complete_since
    if complete_since is None:
        return "partial: not fetched yet"
    return f"complete since {day(complete_since, view.at)} {complete_since.astimezone():%H:%M}, older is partial"


def sampled(figures: tuple[RepositoryFigures, ...]) -> bool:
    """Whether some percentiles are made of the newest runs only."""
    return any(each.timed < each.completed + each.failed for each in figures)
