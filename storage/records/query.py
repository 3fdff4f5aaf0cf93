"""Which runs are wanted, and in which order."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from storage.records.run import FINAL_STATUSES

SortColumn = Literal["started", "updated", "took", "status", "repository", "branch", "run"]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """All conditions hold together; an empty one excludes nothing."""

    statuses: tuple[str, ...] = ()
    not_statuses: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    """Labels; `*` matches anything, as in `acme/*`."""
    not_repositories: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    """Names; `*` matches anything, as in `agent/*`."""
    not_branches: tuple[str, ...] = ()
    since: datetime | None = None
    """Inclusive, by creation."""
    until: datetime | None = None
    """Inclusive, by creation."""
    search: str = ""
    """Words that must all occur, in any case, in run id, repository or branch."""
    active: bool = False
    """Only runs whose status is not known to be final."""
    stuck: bool = False
    """Only runs that are flagged as stuck; known to the cache alone."""

    def __bool__(self) -> bool:
        """Whether anything is filtered at all."""
        return self != RunFilter()

    def lets_status_through(self, status: str) -> bool:
        """Whether runs of this status get through what the filter says of statuses."""
        wanted = (not self.statuses or status in self.statuses) and status not in self.not_statuses
        return wanted and not (self.active and status in FINAL_STATUSES)


@dataclass(frozen=True, slots=True)
class RunSort:
    """An order of runs; the run id breaks ties, so that it is total."""

    column: SortColumn = "started"
    descending: bool = True
