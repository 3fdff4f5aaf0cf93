"""Runs: the service's data (spec 2.4) and our observations."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from storage.records.repository import Repository
from storage.records.results import FindingCounts
from storage.records.run_fields import FINAL_STATUSES

Presence = Literal["current", "unconfirmed", "lost"]
"""Whether the service still shows a held run: `unconfirmed` until a look-up, then `current` or `lost`."""


class Run(Struct, frozen=True, gc=False):
    """A run as the service reported it."""

    run_id: str
    status: str
    branch_name: str
    repository: Repository
    created_at: datetime | None
    """None: the service's timestamp could not be read; `raw_json` has it as received."""
    updated_at: datetime | None
    raw_json: str
    """The run object as received, unknown fields and all."""


class WorkTime(Struct, frozen=True):
    """How long a run worked, without the time between its turns; with neither field set it is unknown."""

    seconds: float | None = None
    """The total of a run that has ended."""
    since: datetime | None = None
    """The time when an active run would have begun if it had worked without a pause."""

    def until(self, as_of: datetime) -> float | None:
        """The seconds up to then; all of them, once it has ended."""
        return self.seconds if self.since is None else max(0.0, (as_of - self.since).total_seconds())


class StatusTransition(Struct, frozen=True):
    """A change of status that was observed between two polls."""

    run_id: str
    old: str | None
    """None: the first time the run was seen."""
    new: str
    at: datetime
    """When it happened, as the service's `updated_at`; without that, when it was seen."""


class RunChanges(Struct, frozen=True):
    """The changes that one batch of runs made in the cache."""

    new: tuple[str, ...] = ()
    """Ids of runs that were not held before."""
    transitions: tuple[StatusTransition, ...] = ()
    """Changes of status of runs that were held before."""
    updated: tuple[str, ...] = ()
    """Ids of held runs whose status stayed while another field changed, or which are shown again."""

    def __bool__(self) -> bool:
        """Whether anything changed at all."""
        return bool(self.new or self.transitions or self.updated)


ASKS: Final = "asks: "
"""Begins the result of a turn that ended with a question."""


class ActiveRun(Struct, frozen=True, gc=False):
    """What a poll needs of each active run, of which there may be very many."""

    run_id: str
    status: str
    created_at: datetime | None


class RunSummary(Struct, frozen=True, omit_defaults=True):
    """The subject of a run, as far as the ledger or the service has it; foreign text."""

    asked: str = ""
    """The first line of its first instructions. Empty: not known."""
    result: str = ""
    """Its result, or its agent's last step while it works, in one line. Empty: the service does not report it."""
    agent: str | None = None
    """The name of the agent that works on it; None: not known."""
    turns: int | None = None
    """How many turns the service counts; None: not known."""
    status: str = ""
    """The run's status when the service was asked about it. Empty: it was not, or the run has changed since."""
    updated_at: datetime | None = None
    """The run's own time then."""
    findings: FindingCounts | None = None
    """The counts of its last turn's findings. None: not known, which is not the same as none."""

    @property
    def asks(self) -> bool:
        """Whether its agent waits for an answer."""
        return self.result.startswith(ASKS)


SEPARATOR: Final = "\x1f"
"""Stands between profile and run id in a list of several profiles."""


def row_id(profile: str, run_id: str) -> str:
    """The id of a run's row in a list of several profiles; it is no run's id, since profiles may have equal ones."""
    return f"{profile}{SEPARATOR}{run_id}"


def whose(row: str) -> tuple[str, str]:
    """The profile and the run's own id of a `row_id`."""
    profile, _, run_id = row.partition(SEPARATOR)
    return profile, run_id


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as a table shows it: light, one for each visible line."""

    run_id: str
    status: str
    branch_name: str
    repository: str
    """The repository's label."""
    created_at: datetime | None
    updated_at: datetime | None
    first_seen_at: datetime
    presence: Presence
    is_final: bool
    """Whether the status is final."""
    took: WorkTime = field(default_factory=WorkTime)
    last_seen_at: datetime | None = field(default=None, compare=False)
    """When the service last confirmed it, by our clock: a row that was confirmed again is the same row."""
    summary: RunSummary = field(default_factory=RunSummary)
    profile: str = ""
    """Where the rows of several profiles are in one list: whose it is. Empty: there is one profile."""

    def of(self, profile: str) -> "RunRow":
        """The row in a list of several profiles, with the id of a row there."""
        return replace(self, run_id=row_id(profile, self.run_id), profile=profile)

    @property
    def own_id(self) -> str:
        """The run's id in its own profile."""
        return whose(self.run_id)[1] if self.profile else self.run_id


class RunDetail(Struct, frozen=True):
    """All data of one run."""

    run: Run
    first_seen_at: datetime
    last_seen_at: datetime
    presence: Presence
    transitions: tuple[StatusTransition, ...]
    """Oldest first."""
    took: WorkTime = WorkTime()
    final_statuses: frozenset[str] = FINAL_STATUSES
    """The statuses that end a turn: those of the spec, and others."""
    summary: RunSummary = RunSummary()

    @property
    def is_final(self) -> bool:
        """Whether the run's status is final."""
        return self.run.status in self.final_statuses

    @property
    def turns(self) -> int:
        """How many turns were observed: one more than there were continues."""
        finals = self.final_statuses
        return 1 + sum(move.old in finals and move.new not in finals for move in self.transitions)
