"""What the Insights room shows: the figures of a stretch of time, and how much of it is known."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from storage.records import Coverage
from storage.records.insights import Concurrency, Outcomes, RepositoryFigures

Step = Literal["hour", "day"]


@dataclass(frozen=True, slots=True)
class InsightsView:
    """Figures up to a moment."""

    title: str
    """Of the stretch: `the last 7 days`."""
    step: Step
    """What an outcome's stretch is."""
    at: datetime
    """Up to when."""
    outcomes: tuple[Outcomes, ...]
    """Oldest first."""
    concurrency: tuple[Concurrency, ...]
    """Oldest first."""
    repositories: tuple[RepositoryFigures, ...]
    """The busiest first."""
    coverage: Coverage

    @property
    def since(self) -> datetime:
        """The beginning of it."""
        return self.outcomes[0].start

    @property
    def completed(self) -> int:
        """All of it together."""
        return sum(each.completed for each in self.outcomes)

    @property
    def failed(self) -> int:
        """All of it together."""
        return sum(each.failed for each in self.outcomes)

    @property
    def unfinished(self) -> int:
        """All of it together."""
        return sum(each.unfinished for each in self.outcomes)

    @property
    def runs(self) -> int:
        """All of it together."""
        return self.completed + self.failed + self.unfinished

    @property
    def is_complete(self) -> bool:
        """Whether every run of the stretch is held."""
        coverage = self.coverage
        return coverage.whole or (coverage.complete_since is not None and coverage.complete_since <= self.since)

    def is_partial(self, each: Outcomes) -> bool:
        """Whether some of its runs may be missing."""
        complete_since = self.coverage.complete_since
        return not self.coverage.whole and (complete_since is None or complete_since > each.start)
