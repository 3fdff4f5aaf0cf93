"""Runs as commands print them: as JSON, and as rows of a table."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app.cli.output import Column
from app.engine.times import exact_ago, rfc3339, span
from app.runs.document import run_document
from storage.records import STATUS_BY_NAME, ActionFilter, Run, RunDetail, RunSummary

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.engine.files import ProfileFiles

CACHED_HINT: Final = "Show earlier results with --cached."
CHUNK: Final = 500
"""Runs per cache query."""


class RunDocument(Struct, frozen=True):
    """One run as shown."""

    run: Run
    detail: RunDetail | None
    """None: the cache has not seen it."""
    is_stuck: bool
    continues: str | None
    now: datetime
    """Now, by the clock that the run's times come from."""
    ahead: timedelta
    """How far that clock is ahead of this machine's."""

    def document(self) -> dict[str, object]:
        """The run as JSON."""
        return run_document(self.run, self.detail, stuck=self.is_stuck, continues=self.continues)

    @property
    def summary(self) -> RunSummary:
        """What is known of its results."""
        return self.detail.summary if self.detail else RunSummary()

    @property
    def presence(self) -> str:
        """Whether the service still shows it."""
        return self.detail.presence if self.detail else "current"

    @property
    def status(self) -> str:
        """Its status with a glyph, whether it is stuck, and whether the service still shows it."""
        marks = ["stuck"] * self.is_stuck + [self.presence] * (self.presence != "current")
        return badge(self.run.status) + (f" ({', '.join(marks)})" if marks else "")

    @property
    def tone(self) -> str:
        """The tone of a status that the spec names; others have none."""
        return STATUS_BY_NAME[self.run.status].tone if self.run.status in STATUS_BY_NAME else ""

    @property
    def took(self) -> str:
        """How long it worked until it finished, or until now."""
        seconds = self.detail.took.until(self.now) if self.detail else None
        return "—" if seconds is None else span(seconds, pads_hours=False)


async def views(
    engine: "Engine | ProfileFiles", runs: Sequence[Run], continued: Mapping[str, str] | None = None
) -> tuple[RunDocument, ...]:
    """These runs with the data of cache and ledger; `continued` is as of `continued_from`."""
    ahead = await engine.cache.run_clock_ahead()
    now = engine.clock() + ahead
    stuck = await engine.cache.stuck()
    details = await engine.cache.details([run.run_id for run in runs])
    earlier = await continued_from(engine) if continued is None else continued
    return tuple(
        RunDocument(run, details.get(run.run_id), run.run_id in stuck, earlier.get(run.run_id), now, ahead)
        for run in runs
    )


async def continued_from(engine: "Engine | ProfileFiles") -> dict[str, str]:
    """The run that each run continues, if the service gave the continuation another id."""
    actions = await engine.ledger.actions(ActionFilter({"run.continue"}, {"confirmed"}), limit=10_000)
    return {
        action.result_id: action.subject
        for action in actions
        if action.result_id is not None and action.result_id != action.subject
    }


def badge(status: str) -> str:
    """The status with its glyph."""
    glyph = STATUS_BY_NAME[status].glyph if status in STATUS_BY_NAME else "·"
    return f"{glyph} {status or '(no status)'}"


COLUMNS: Final[tuple[Column[RunDocument], ...]] = (
    Column("status", lambda v: v.status, "status", lambda v: v.run.status, tone=lambda v: v.tone),
    Column("repository", lambda v: v.run.repository.label, "repository", flexible=True),
    Column("branch", lambda v: v.run.branch_name, "branch_name", flexible=True),
    Column("started", lambda v: exact_ago(v.run.created_at, v.now), "created_at", lambda v: rfc3339(v.run.created_at)),
    Column("took", lambda v: v.took, "updated_at", lambda v: rfc3339(v.run.updated_at)),
    Column("run", lambda v: v.run.run_id, "run_id"),
)
EXPORTED: Final = (
    *COLUMNS,
    Column[RunDocument]("agent", lambda v: v.summary.agent or "?", "agent", lambda v: v.summary.agent),
    Column[RunDocument](
        "findings",
        lambda v: "?" if v.summary.findings is None else str(v.summary.findings),
        "findings",
        lambda v: None if v.summary.findings is None else str(v.summary.findings),
    ),
)
"""The columns of an export, with what is known of results; an unknown value is an empty cell in CSV."""
