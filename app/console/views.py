"""Ready-made views of the runs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from storage.records import RunFilter

TODAY: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class View:
    """A name for a filter."""

    title: str
    condition: Callable[[datetime], RunFilter]
    """The filter as of now: `the last 24 hours` moves with the clock."""
    empty: str
    """What it means that there is nothing in it."""


def failed_today(now: datetime) -> RunFilter:
    """Runs of the last 24 hours that failed."""
    return RunFilter(statuses=("failed",), since=now - TODAY)


VIEWS: Final = (
    View("All", lambda _: RunFilter(), "No runs yet"),
    View("Active", lambda _: RunFilter(active=True), "Nothing is running"),
    View("Failed 24h", failed_today, "No run failed in the last 24 hours"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person wants to see: a view, narrowed by statuses and a search."""

    view: int = 0
    """Index into `VIEWS`."""
    statuses: tuple[str, ...] = ()
    search: str = ""

    @property
    def is_narrowed(self) -> bool:
        """Whether escape has something to clear."""
        return bool(self.statuses or self.search)

    def condition(self, now: datetime) -> RunFilter:
        """The filter as of now."""
        base = VIEWS[self.view].condition(now)
        statuses = self.statuses or base.statuses
        return replace(base, statuses=statuses, search=self.search)
