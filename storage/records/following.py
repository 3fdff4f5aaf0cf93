"""Following runs: followed ones, usual durations, stuck ones, and changes of status."""

from datetime import datetime, timedelta

from msgspec import Struct

from storage.records.run import RunRow


class RunDurations(Struct, frozen=True):
    """How long a repository's finished runs took, without the time between their turns."""

    median_s: float
    p95_s: float
    """The 95th percentile, nearest rank."""
    runs: int
    """The newest finished runs that the two are made of."""


class PinnedRun(Struct, frozen=True):
    """A run that is followed until it finishes."""

    run_id: str
    row: RunRow | None = None
    """None: the cache does not hold it."""
    durations: RunDurations | None = None
    """None: no run of its repository has finished."""
    is_stuck: bool = False


class StuckRun(Struct, frozen=True):
    """An active run that takes far longer than its repository's runs do."""

    run_id: str
    repository: str
    status: str
    active_since: datetime
    """When its current turn began."""
    last_seen_at: datetime
    """When the service last showed it as active, by the clock of its times; the time after that proves nothing."""
    p95_s: float
    """The 95th percentile of its repository when it was flagged. 0: no run had finished there."""
    branch_name: str = ""


class PastStuck(Struct, frozen=True):
    """A run that was stuck for some time, by our clock."""

    run: StuckRun
    at: datetime
    """When it should have been flagged."""
    until: datetime


class ObservedChange(Struct, frozen=True):
    """A change of a run's status that this machine saw."""

    run_id: str
    repository: str
    branch_name: str
    old: str | None
    """None: it was first seen so."""
    new: str
    at: datetime
    """When it happened according to the service or, without that, when it was seen."""


class StatusChange(ObservedChange, frozen=True):
    """A change of status in the cache, with enough of the run to report it."""

    after: datetime
    """The time, by our clock, when an answer showed that it had not happened yet. 1970: none did."""
    active_since: datetime
    """When it would have begun if it had worked without the pauses between its turns."""
    is_pinned: bool
    is_final: bool

    def happened_at(self, ahead: timedelta) -> datetime:
        """When the change happened, by our clock, given the service's lead; our own observation beats its times."""
        return max(self.at - ahead, self.after)


class Watermark(Struct, frozen=True):
    """Up to where changes of status in the cache have been reported."""

    transition: int = 0
    run: int = 0
    saved_at: datetime | None = None
    """When it was saved. None: never yet; everything held now counts as reported."""


class StatusChanges(Struct, frozen=True):
    """Changes of status after a watermark, oldest first."""

    changes: tuple[StatusChange, ...]
    watermark: Watermark
    """Where the next report begins."""
    ahead: timedelta = timedelta(0)
    """How far the runs' times are ahead of our clock."""


class RunEvent(ObservedChange, frozen=True):
    """A change of status, in the order in which this machine saw all of them."""

    cursor: str
    """Its place among all of them."""


class RunEvents(Struct, frozen=True):
    """Events after a cursor, in the order in which this machine saw them."""

    events: tuple[RunEvent, ...]
    cursor: str
    is_held: bool = False
    """Whether a failure follows that may turn out to be a cancellation."""
