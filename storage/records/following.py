"""Following runs: those pinned, how long their repository's runs take, which are stuck, and what moved meanwhile."""

from dataclasses import dataclass
from datetime import datetime

from storage.records.run import RunRow


@dataclass(frozen=True, slots=True)
class RunDurations:
    """How long a repository's finished runs took, from the beginning of their last turn to its end."""

    median_s: float
    p95_s: float
    """The 95th percentile, nearest rank."""
    runs: int
    """How many finished runs, the newest ones, the two are made of."""


@dataclass(frozen=True, slots=True)
class PinnedRun:
    """A run that is watched to its end."""

    run_id: str
    pinned_at: datetime
    row: RunRow | None = None
    """None: the cache does not hold it (any more)."""
    active_since: datetime | None = None
    """When its current or last turn began. None: as with `row`."""
    last_seen_at: datetime | None = None
    durations: RunDurations | None = None
    """None: no run of its repository has finished."""
    is_stuck: bool = False


@dataclass(frozen=True, slots=True)
class StuckRun:
    """An active run that takes far longer than its repository's runs do."""

    run_id: str
    repository: str
    status: str
    active_since: datetime
    """When its current turn began."""
    last_seen_at: datetime
    """When the service last showed it as active; nothing is said of the time after that."""
    p95_s: float
    """Of its repository when it was flagged; 0: none of its runs had finished."""


@dataclass(frozen=True, slots=True)
class RunMove:
    """A change of status that came into the cache, with enough of the run to speak of it."""

    run_id: str
    repository: str
    branch_name: str
    old: str | None
    """None: it was first seen so."""
    new: str
    at: datetime
    """When it happened, by the service's word where it gave one."""
    active_since: datetime
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the order in which facts came into the cache."""

    transition: int = 0
    run: int = 0
    kept_at: datetime | None = None
    """When somebody kept it. None: nobody did yet, and it is where everything held now has been seen."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What moved after a mark, oldest first."""

    moves: tuple[RunMove, ...]
    mark: Mark
    """Where the next look begins."""
