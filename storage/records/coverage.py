"""Coverage: the ranges of creation times of which every run is held, in the service's own times; and the backfill."""

from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

CLOCK_STEP: Final = timedelta(seconds=5)
"""A smaller difference between two clocks is noise: answers take time, and are dated in whole seconds."""


class CoverageRange(Struct, frozen=True):
    """A closed range: every run created from `start` to `end` is held."""

    start: datetime | None
    """None: down to the very first run."""
    end: datetime | None
    """None: the list was empty, or its times cannot be read; nothing is claimed above."""

    def holds(self, created_at: datetime | None) -> bool:
        """Whether a run of this creation is held for certain."""
        if created_at is None or self.end is None:
            return False
        return created_at <= self.end and (self.start is None or self.start <= created_at)


class CoverageGap(Struct, frozen=True):
    """A gap: runs created between these times, both exclusive, may be missing."""

    after: datetime | None
    """None: from the very first run."""
    before: datetime | None
    """None: up to the newest run."""

    def overlaps(self, other: "CoverageGap") -> bool:
        """Whether the two gaps overlap, as an old gap and its unfetched rest do."""
        ends = ((self.after, other.before), (other.after, self.before))
        return all(start is None or end is None or start < end for start, end in ends)


class Coverage(Struct, frozen=True):
    """The completely held parts of the service's history."""

    ranges: tuple[CoverageRange, ...] = ()
    """The newest first; they do not touch."""
    as_of: datetime | None = None
    """The time, by our clock, up to which the newest range misses nothing. Later runs may be missing."""
    first_run_at: datetime | None = None
    """The oldest creation that is held, if the newest range reaches down to the very first run."""
    is_disordered: bool = False
    """The service's list was out of order when it was last read: nothing is known of newer runs."""
    dropped: int = 0
    """Entries of the last answered poll that had no usable id: they cannot be held."""

    @property
    def whole(self) -> bool:
        """Whether every run up to `as_of` is held."""
        return bool(self.ranges) and self.ranges[0].start is None

    @property
    def complete_since(self) -> datetime | None:
        """The creation time from which no run is missing until `as_of`. None: nothing is known to be complete."""
        if not self.ranges:
            return None
        newest = self.ranges[0]
        return newest.start or self.first_run_at or newest.end or self.as_of

    @property
    def gaps(self) -> tuple[CoverageGap, ...]:
        """The gaps between the ranges and below them, newest first."""
        below = (*(older.end for older in self.ranges[1:]), None)
        return tuple(
            CoverageGap(after, newer.start)
            for newer, after in zip(self.ranges, below, strict=False)
            if newer.start is not None
        )

    def is_current(self, at: datetime) -> bool:
        """Whether the newest range misses nothing up to this time of our clock."""
        return self.as_of is not None and self.as_of >= at


BackfillPhase = Literal["idle", "running", "paused", "waiting", "done"]
"""`idle`: this process does not fill. `done`: all that the configuration names is held."""


class BackfillProgress(Struct, frozen=True):
    """The progress of the backfill."""

    phase: BackfillPhase = "idle"
    done_runs: int = 0
    """How many runs the process that backfills has fetched."""
    estimated_runs: int | None = None
    """About how many runs it will have fetched in the end. None: not known."""
    oldest: datetime | None = None
    """Nothing is missing from then on. None: nothing is known to be complete."""
    seconds_left: float | None = None
    """None: not known."""
    until: datetime | None = None
    """The time when it continues, while it waits."""
    why: str = ""
    """The kind of error that it waits out, while it waits."""
    dropped: int = 0
    """Entries of the list that were left out: they have no usable run id."""


class History(Struct, frozen=True):
    """The known history at one moment."""

    coverage: Coverage
    is_unread: bool = False
    """Whether a list whose order proves nothing continues below the part that was read."""
    is_paused: bool = False
    dropped_until: datetime | None = None
    """The creation time up to which runs were dropped, and are not fetched again. None: none were dropped."""
    progress: BackfillProgress | None = None
    """The progress of the process that backfills. None: no process reported any lately."""


class ListPlace(Struct, frozen=True):
    """A place in the service's list at which a walk stopped."""

    token: str
    """Leads to the next page."""
    total: int | None
    """The number of runs in the list by then. None: not known."""
