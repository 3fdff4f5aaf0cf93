"""The statuses and fields of a run, each declared once: tables, badges, filters, JSON, completion and SQL read them."""

from typing import Final, Literal

from msgspec import Struct

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
    """The activity of a run with this status."""


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
    """Whether the first choice of the order is the descending one."""


_NEWEST: Final = "created_us DESC, run_id DESC"
# The indexes of repositories and branches also hold columns of figures, which are then read without the table.
RUN_FIELDS: Final = (
    RunField(
        "active",
        f"is_final, {_NEWEST}",
        f"is_final, {_NEWEST}, status",
        ascending="active first, each newest first",
        descending="active last, each oldest first",
    ),
    RunField("status", f"severity, {_NEWEST}", f"severity, {_NEWEST}, status"),
    RunField("repository", f"repository, {_NEWEST}", f"repository, {_NEWEST}, status, took_us"),
    RunField("branch", f"branch, {_NEWEST}", f"branch, {_NEWEST}, status"),
    RunField(
        "started", "created_us, run_id", ascending="oldest first", descending="newest first", begins_descending=True
    ),
    RunField(
        "updated",
        "updated_us, id",
        "updated_us DESC, id DESC, status",
        ascending="longest unchanged first",
        descending="latest change first",
        begins_descending=True,
    ),
    RunField(
        "took",
        order="took_us, id",
        index="took_us, id, status",
        ascending="shortest first",
        descending="longest first, active above",
        begins_descending=True,
    ),
    RunField(
        "findings",
        "findings, created_us, run_id",
        "findings, created_us, run_id, status",
        ascending="unknown first, then the fewest",
        descending="most severe first, unknown last",
        begins_descending=True,
    ),
    RunField(
        "agent",
        "agent, created_us, run_id",
        "agent, created_us, run_id, status",
        ascending="unknown first, then a to z",
        descending="z to a, unknown last",
        begins_descending=True,
    ),
    RunField("run", "run_id"),
)
"""The cache can sort by each."""
FIELD_BY_NAME: Final = {field.name: field for field in RUN_FIELDS}
SORTABLE: Final = tuple(sorted(RUN_FIELDS, key=lambda field: not field.begins_descending))
"""The fields in the order in which they are offered for sorting, times first."""
