"""The progress of the backfill and of the re-reading."""

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
    """A place in the service's list that a walk reached."""

    token: str
    """Leads to the last page that was read."""
    run_id: str
    """The last run on it: if it is there again, nothing slipped by."""
    as_of: datetime
    """By our clock: when the walk began."""


@dataclass(frozen=True, slots=True)
class RereadPlace:
    """The progress of the re-reading."""

    began_at: datetime
    """By our clock: when the pass under way began."""
    floor: datetime | None = None
    """It reads the runs created since then. None: all that the list shows, since its dates cannot be asked for."""
    down_to: datetime | None = None
    """Runs created since then were read again in this pass. None: none yet."""
    token: str | None = None
    """Leads to the next page. None: the next page is asked for by dates, or is the first one."""
    last_began_at: datetime | None = None
    """By our clock: when the pass before it began, which read the others. None: there was none."""
