"""The progress of the backfill."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

BackfillPhase = Literal["idle", "running", "paused", "waiting", "done"]
"""`idle`: this process does not fill. `done`: all that the configuration names is held."""


@dataclass(frozen=True, slots=True)
class BackfillProgress:
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
    """While it waits: when it goes on."""
    why: str = ""
    """While it waits: the kind of error that it waits out."""
    dropped: int = 0
    """Entries of the list that were left out: they have no usable run id."""


@dataclass(frozen=True, slots=True)
class ListPlace:
    """A place in the service's list at which a walk stopped."""

    token: str
    """Leads to the next page."""
    total: int | None
    """The number of runs in the list by then. None: not known."""
