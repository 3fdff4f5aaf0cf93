"""Figures over many runs, for charts and for the same numbers as a table."""

from datetime import datetime

from msgspec import Struct


class RunCounts(Struct, frozen=True):
    """The number of runs by outcome."""

    completed: int = 0
    failed: int = 0
    unfinished: int = 0
    """Queued, working, or with any other status that is not known to be final."""
    ended_otherwise: int = 0
    """The number of runs in a status that was learnt to be final."""

    @property
    def total(self) -> int:
        return self.completed + self.failed + self.unfinished + self.ended_otherwise


class Outcomes(RunCounts, frozen=True, kw_only=True):
    """The outcomes of the runs created in a stretch of time."""

    start: datetime
    end: datetime
    """The end, exclusive."""


class FailedRuns(Struct, frozen=True):
    """The runs that failed in a stretch of time."""

    number: int = 0
    oldest_at: datetime | None = None
    """When the oldest run was created; None without runs."""


class RepositoryFigures(RunCounts, frozen=True, kw_only=True):
    """One repository's runs of a stretch of time, by creation."""

    repository: str
    p50_s: float | None = None
    """The median duration of finished runs in seconds; None if none has finished."""
    p95_s: float | None = None
    timed: int = 0
    """How many of the newest finished runs the two percentiles cover."""

    @property
    def success(self) -> float | None:
        """The completed share of the finished runs, 0 to 1; None if none has finished."""
        finished = self.completed + self.failed
        return self.completed / finished if finished else None
