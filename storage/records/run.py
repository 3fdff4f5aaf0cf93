"""Runs: the service's data (spec 2.4), its repositories (spec 2.3), and our observations.

The statuses and fields of a run are each declared once: tables, badges, filters, JSON, completion and SQL read them.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, Self

from msgspec import Struct

from storage import UnreadableTextError
from storage.records.results import FindingCounts

DEFAULT_PLATFORM: Final = "github"
_WITHOUT_GROUPS: Final = {"github": "GitHub", "forgejo": "Forgejo"}
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
"""Made once: `json.dumps` with options makes one a call."""
_NONE: Final = frozenset({"null", '""', "{}"})


class Repository(Struct, frozen=True, gc=False):
    """One repository as the service names it."""

    platform: str
    """Empty: the service sent something other than a reference, which is in the data."""
    data_json: str
    """The reference's `data` object as canonical JSON: hashable, and complete for platforms that are not known yet."""

    @classmethod
    def of(cls, platform: str, data: object) -> Self:
        """A reference from its parts, with the data in canonical order."""
        return cls(platform, _CANONICAL.encode(data))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `owner/repo`, or `gitlab:group/project`; the message of a `ValueError` shows the forms."""
        platform, colon, path = text.strip().partition(":")
        if not colon:
            platform, path = DEFAULT_PLATFORM, platform
        owner, slash, name = path.rpartition("/")
        if not (slash and owner and name and platform) or path.startswith("/") or any(c.isspace() for c in path):
            raise UnreadableTextError(f"{text!r} is not a repository.", "Write owner/repo, or gitlab:group/project.")
        if platform in _WITHOUT_GROUPS:
            if "/" in owner:
                raise UnreadableTextError(
                    f"{text!r} has too many parts for {_WITHOUT_GROUPS[platform]}.", "Write owner/repo."
                )
            return cls.of(platform, {"owner": owner, "repo": name})
        return cls.of(platform, {"project_path": path})

    @property
    def path(self) -> str:
        """The usual name: `owner/repo` or `group/project`; the raw data if the platform is unknown."""
        data = json.loads(self.data_json)
        fields = data if isinstance(data, dict) else {}
        for shape in (("owner", "repo"), ("group", "project"), ("project_path",), ("path",)):
            parts = [fields.get(key) for key in shape]
            if all(isinstance(part, str) and part for part in parts):
                return "/".join(str(part) for part in parts)
        return data if isinstance(data, str) else self.data_json

    @property
    def label(self) -> str:
        """The path, with a platform prefix unless it is GitHub; `parse` reads it back."""
        if self.platform in {"", DEFAULT_PLATFORM} and self.data_json in _NONE:
            return "(no repository)"
        if self.platform in {"", DEFAULT_PLATFORM}:
            return self.path
        return f"{self.platform}:{self.path}"


Tone = Literal["good", "bad", "busy", "wait", "warn", "plain", "quiet"]
"""The meaning of a text, which a theme or a terminal turns into a colour."""


class RunStatus(Struct, frozen=True):
    """A status that the spec names (2.4), or `CANCELLED`."""

    name: str
    glyph: str
    """One cell wide."""
    tone: Tone
    urgency: int
    """Its place in the order by status, the lowest first; see `STUCK_URGENCY` for the others."""
    is_final: bool
    fill: str = ""
    """How a bar of time in this status is drawn, so that colour only repeats it."""
    becomes: str = ""


CANCELLED: Final = "cancelled"
"""The status of a run that failed because it was cancelled: the service reports this in addition to its list."""
RUN_STATUSES: Final = (
    RunStatus("queued", "○", "wait", 3, is_final=False, fill="░"),
    RunStatus("working", "●", "busy", 2, is_final=False, fill="━", becomes="starts working"),
    RunStatus("completed", "✓", "good", 5, is_final=True, becomes="completes"),
    RunStatus("failed", "✗", "bad", 0, is_final=True, becomes="fails"),
    RunStatus(CANCELLED, "⊘", "quiet", 4, is_final=True, becomes="is cancelled"),
)
"""The statuses in the order of a run's life, in which they are offered."""
STUCK_URGENCY: Final = 1
"""The urgency of stuck runs, and of those with a status that is neither of the spec nor known to be final."""
ENDED_URGENCY: Final = 4
"""The urgency of runs with a status that the spec does not name, but that is known to be final."""

STATUS_ORDER: Final = tuple(status.name for status in RUN_STATUSES)
KNOWN_STATUSES: Final = frozenset(STATUS_ORDER)
ACTIVE_STATUSES: Final = tuple(status.name for status in RUN_STATUSES if not status.is_final)
FINAL_STATUSES: Final = frozenset(status.name for status in RUN_STATUSES if status.is_final)
ENDING_STATUSES: Final = frozenset(
    {
        *("aborted", "canceled", CANCELLED, "done", "error", "errored", "expired", "finished", "killed", "rejected"),
        *("skipped", "succeeded", "success", "terminated", "timed_out", "timeout"),
    }
)
"""Other statuses with a name that means final, in lower case. Any further one counts as active."""
STATUS_BY_NAME: Final = {status.name: status for status in RUN_STATUSES}


class RunField(Struct, frozen=True):
    """A field of a run that a table shows, or only an order."""

    name: str
    """The name in settings, in queries and on the command line; a column's title."""
    order: str
    """The ascending order by it as SQL, total by itself; descending is its exact reverse.

    Runs that are equal are newest first. Equal durations and changes are ordered by `id`: `run_id` would make half
    of the index."""
    index: str = ""
    """The index that serves the order; empty: the cache always has one."""
    ascending: str = "a to z"
    """The meaning of the order, in words."""
    descending: str = "z to a"
    begins_descending: bool = False


def _indexed_field(
    name: str, order: str, up: str = "a to z", down: str = "z to a", *, covers: str = "status", is_down: bool = False
) -> RunField:
    """A field with an index that covers its order, and the columns that counts and figures read from it."""
    return RunField(name, order, f"{order}, {covers}", up, down, begins_descending=is_down)


_NEWEST: Final = "created_us DESC, run_id DESC"
_OLDEST: Final = "created_us, run_id"
RUN_FIELDS: Final = (
    _indexed_field(
        "active", f"is_final, {_NEWEST}", "active first, each newest first", "active last, each oldest first"
    ),
    _indexed_field("status", f"severity, {_NEWEST}"),
    _indexed_field("repository", f"repository, {_NEWEST}", covers="status, took_us"),
    _indexed_field("branch", f"branch, {_NEWEST}"),
    RunField("started", _OLDEST, "", "oldest first", "newest first", begins_descending=True),
    RunField(
        "updated",
        "updated_us, id",
        "updated_us DESC, id DESC, status",
        "longest unchanged first",
        "latest change first",
        begins_descending=True,
    ),
    _indexed_field("took", "took_us, id", "shortest first", "longest first, active above", is_down=True),
    _indexed_field(
        "findings",
        f"findings, {_OLDEST}",
        "unknown first, then the fewest",
        "most severe first, unknown last",
        is_down=True,
    ),
    _indexed_field("agent", f"agent, {_OLDEST}", "unknown first, then a to z", "z to a, unknown last", is_down=True),
    RunField("run", "run_id"),
)
FIELD_BY_NAME: Final = {field.name: field for field in RUN_FIELDS}
SORTABLE: Final = tuple(sorted(RUN_FIELDS, key=lambda field: not field.begins_descending))


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
        """The seconds worked up to that time; the total once the run has ended."""
        if self.since is None:
            return self.seconds
        return max(0.0, (as_of - self.since).total_seconds())


class StatusTransition(Struct, frozen=True):
    """A change of status that was observed between two polls."""

    run_id: str
    old: str | None
    """None: the first time the run was seen."""
    new: str
    at: datetime
    """When it happened, as the service's `updated_at`; without that, when it was seen."""


class RunChanges(Struct, frozen=True):
    """Changes of the runs in the cache."""

    new: tuple[str, ...] = ()
    """Ids of runs that were not held before."""
    transitions: tuple[StatusTransition, ...] = ()
    updated: tuple[str, ...] = ()
    """Ids of held runs whose status stayed while another field changed, or which are shown again."""
    presence: tuple[str, ...] = ()
    """Ids of held runs that the service no longer shows, or of which this is unknown."""
    final_status: str = ""
    """A status that counts as final from now on."""
    dropped: int = 0

    def __bool__(self) -> bool:
        return self != RunChanges()


ASKS: Final = "asks: "
"""Begins the result of a turn that ended with a question."""


class ActiveRun(Struct, frozen=True, gc=False):
    """The facts that a poll needs about each active run; kept small, since there may be very many."""

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


SEPARATOR: Final = "\x1f"
"""Stands between profile and run id in a list of several profiles."""


def row_id(profile: str, run_id: str) -> str:
    """The id of a run's row in a list of several profiles; it is no run's id, since profiles may have equal ones."""
    return f"{profile}{SEPARATOR}{run_id}"


def split_row_id(row: str) -> tuple[str, str]:
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
        return split_row_id(self.run_id)[1] if self.profile else self.run_id


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
        return self.run.status in self.final_statuses

    @property
    def turns(self) -> int:
        """How many turns were observed: one more than there were continues."""
        finals = self.final_statuses
        return 1 + sum(move.old in finals and move.new not in finals for move in self.transitions)
