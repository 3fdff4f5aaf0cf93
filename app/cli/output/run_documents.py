"""Runs as commands print them: JSON with the service's own fields as received, and rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from app.cli.output.table import Column
from app.run_document import run_document
from app.times import exact_ago, rfc3339, span
from storage.records import Run, RunDetail

if TYPE_CHECKING:
    from app.engine import Engine
    from app.files import ProfileFiles

CHUNK: Final = 500
"""Runs per cache query."""
BADGES: Final = {"queued": ("○", "warn"), "working": ("●", "busy"), "completed": ("✓", "good"), "failed": ("✗", "bad")}
"""Glyph and tone of the statuses that the spec names; others get neither."""


@dataclass(frozen=True, slots=True)
class RunDocument:
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
        """As JSON."""
        return run_document(self.run, self.detail, stuck=self.is_stuck, continues=self.continues)

    @property
    def presence(self) -> str:
        """Whether the service still shows it."""
        return self.detail.presence if self.detail else "current"

    @property
    def took(self) -> str:
        """How long it worked, up to its end or until now."""
        seconds = self.detail.took.until(self.now) if self.detail else None
        return "—" if seconds is None else span(seconds, pads_hours=False)


async def views(
    engine: "Engine | ProfileFiles", runs: Sequence[Run], continued: Mapping[str, str] | None = None
) -> tuple[RunDocument, ...]:
    """These runs with the data of cache and ledger; `continued` is as of `continued_from`."""
    ahead = await engine.cache.run_clock_ahead()
    now = engine.clock() + ahead
    stuck = await engine.cache.stuck()
    details: dict[str, RunDetail] = {}
    for start in range(0, len(runs), CHUNK):
        details |= await engine.cache.details([run.run_id for run in runs[start : start + CHUNK]])
    earlier = await continued_from(engine) if continued is None else continued
    return tuple(
        RunDocument(run, details.get(run.run_id), run.run_id in stuck, earlier.get(run.run_id), now, ahead)
        for run in runs
    )


async def continued_from(engine: "Engine | ProfileFiles") -> dict[str, str]:
    """By run: the run whose conversation it continues, if the service gave the continuation another id."""
    actions = await engine.ledger.actions(kinds={"run.continue"}, states={"confirmed"}, limit=10_000)
    return {
        action.result_id: action.subject
        for action in actions
        if action.result_id is not None and action.result_id != action.subject
    }


def badge(status: str) -> str:
    """The status with its glyph."""
    glyph, _ = BADGES.get(status, ("·", ""))
    return f"{glyph} {status or '(no status)'}"


def _status(view: RunDocument) -> str:
    marks = ["stuck"] if view.is_stuck else []
    if view.presence != "current":
        marks.append(view.presence)
    return badge(view.run.status) + (f" ({', '.join(marks)})" if marks else "")


COLUMNS: Final[tuple[Column[RunDocument], ...]] = (
    Column("status", _status, "status", lambda v: v.run.status, tone=lambda v: BADGES.get(v.run.status, ("", ""))[1]),
    Column("repository", lambda v: v.run.repository.label, "repository", flexible=True),
    Column("branch", lambda v: v.run.branch_name, "branch_name", flexible=True),
    Column("started", lambda v: exact_ago(v.run.created_at, v.now), "created_at", lambda v: rfc3339(v.run.created_at)),
    Column("took", lambda v: v.took, "updated_at", lambda v: rfc3339(v.run.updated_at)),
    Column("run", lambda v: v.run.run_id, "run_id"),
)
