"""The figures of Insights, how much of them is known, and how they read."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from app.times import day, span
from storage.records import Coverage
from storage.records.insights import Concurrency, Outcomes, RepositoryFigures
from widgets.badges import Badge

ChartStep = Literal["hour", "day"]
COMPLETED: Final = Badge("█", "completed", "good")
FAILED: Final = Badge("x", "failed", "bad")
UNFINISHED: Final = Badge("░", "not finished", "busy")
OTHERWISE: Final = Badge("▒", "ended otherwise", "plain")
UNKNOWN: Final = Badge("·", "not known", "quiet")
"""Each of these has a glyph of its own, so that colour only repeats it."""
NOTHING: Final = "-"
NOT_FETCHED: Final = "not fetched"


@dataclass(frozen=True, slots=True)
class InsightsView:
    """The figures of a period, up to now."""

    title: str
    """The period in words: `the last 7 days`."""
    step: ChartStep
    """The length of time that one outcome covers."""
    at: datetime
    """The end of the period."""
    outcomes: tuple[Outcomes, ...]
    """Oldest first."""
    concurrency: tuple[Concurrency, ...]
    """Oldest first."""
    repositories: tuple[RepositoryFigures, ...]
    """The busiest first."""
    coverage: Coverage

    @property
    def since(self) -> datetime:
        """The beginning of the period."""
        return self.outcomes[0].start

    @property
    def completed(self) -> int:
        """Completed runs in the whole period."""
        return sum(each.completed for each in self.outcomes)

    @property
    def failed(self) -> int:
        """Failed runs in the whole period."""
        return sum(each.failed for each in self.outcomes)

    @property
    def unfinished(self) -> int:
        """Unfinished runs in the whole period."""
        return sum(each.unfinished for each in self.outcomes)

    @property
    def ended_otherwise(self) -> int:
        """Runs in the whole period that ended in another status."""
        return sum(each.ended_otherwise for each in self.outcomes)

    @property
    def runs(self) -> int:
        """All runs in the whole period."""
        return sum(each.total for each in self.outcomes)

    @property
    def is_complete(self) -> bool:
        """Whether the cache holds every run of the period."""
        coverage = self.coverage
        return coverage.whole or (coverage.complete_since is not None and coverage.complete_since <= self.since)

    def is_partial(self, each: Outcomes) -> bool:
        """Whether some runs of this outcome may be missing."""
        complete_since = self.coverage.complete_since
        return not self.coverage.whole and (complete_since is None or complete_since > each.start)

    def is_fetched(self, each: Concurrency) -> bool:
        """Whether every run of this time is cached: otherwise a low number may only mean that it was not fetched."""
        ranges = self.coverage.ranges
        # The newest range has no end: it reaches to the present.
        return any(
            (one.start is None or one.start <= each.start)
            and (one is ranges[0] or (one.end is not None and one.end >= each.end))
            for one in ranges
        )


def share(part: float | None) -> str:
    """A share as a whole percentage; 0% and 100% only if exact."""
    if part is None:
        return NOTHING
    if 0 < part < 1:
        return f"{min(99, max(1, round(part * 100)))}%"
    return f"{part:.0%}"


def seconds(value_s: float | None) -> str:
    """A duration, or `-`."""
    return NOTHING if value_s is None else span(value_s)


def started(at: datetime, step: ChartStep) -> str:
    """When an outcome's time begins: `14:00`, or `Mon 4 May`."""
    local = at.astimezone()
    return f"{local:%H:%M}" if step == "hour" else f"{local:%a} {local.day} {local:%b}"


def tick(at: datetime, step: ChartStep, *, is_short: bool) -> str:
    """The label below an outcome's bar: `14h`, `4` or `4 May`."""
    local = at.astimezone()
    if step == "hour":
        return f"{local:%H}h" if is_short else f"{local:%H:%M}"
    return str(local.day) if is_short else f"{local.day} {local:%b}"


def extent(view: InsightsView) -> str:
    """How many runs, since when, and how much is known: `1,204 runs since 1 May · complete`."""
    runs = "1 run" if view.runs == 1 else f"{view.runs:,} runs"
    since = day(view.since, view.at) if view.step == "day" else f"{view.since.astimezone():%H:%M} yesterday"
    return f"{runs} since {since} · {known(view)}"


def known(view: InsightsView) -> str:
    """How much of the period the cache holds: `complete`, or since when it is."""
    if view.is_complete:
        return "complete"
    complete_since = view.coverage.complete_since
    if complete_since is None:
        return "partial: not fetched yet"
    return f"complete since {day(complete_since, view.at)} {complete_since.astimezone():%H:%M}, older is partial"


def counted(each: Outcomes, view: InsightsView) -> str:
    """The outcomes of an hour or a day: `Fri 1 May: 12 runs, 2 failed`."""
    runs = "1 run" if each.total == 1 else f"{each.total:,} runs"
    partial = ", partial" if view.is_partial(each) else ""
    return f"{started(each.start, view.step)}: {runs}, {each.failed:,} failed{partial}"


def sampled(figures: tuple[RepositoryFigures, ...]) -> bool:
    """Whether some percentiles cover only the newest runs."""
    return any(each.timed < each.completed + each.failed for each in figures)
