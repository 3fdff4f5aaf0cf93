"""A run with everything that is known around it, for tables and for JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from app.cli.documents import run_document
from app.cli.table import Column
from app.cli.times import age, rfc3339, span
from storage.records import Run, RunDetail

if TYPE_CHECKING:
    from app.engine import Engine

CHUNK: Final = 500
"""Runs asked of the cache at once."""
BADGES: Final = {"queued": ("○", "warn"), "working": ("●", "busy"), "completed": ("✓", "good"), "failed": ("✗", "bad")}
"""Glyph and tone of the statuses that the spec names; others get neither."""


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, as it is shown."""

    run: Run
    detail: RunDetail | None
    """None: the cache has not seen it."""
    stuck: bool
    continues: str | None
    now: datetime

    def document(self) -> dict[str, object]:
        """As JSON."""
        return run_document(self.run, self.detail, stuck=self.stuck, continues=self.continues)

    @property
    def presence(self) -> str:
        """Whether the service still shows it."""
        return self.detail.presence if self.detail else "current"

    @property
    def took(self) -> str:
        """From creation to its end, or until now."""
        run = self.run
        end = run.updated_at if run.is_final else self.now
        return span(end - run.created_at) if run.created_at and end else "—"


async def views(engine: "Engine", runs: Sequence[Run]) -> tuple[RunView, ...]:
    """What the cache and the ledger know around these runs."""
    now = engine.clock()
    stuck = await engine.cache.stuck()
    details: dict[str, RunDetail] = {}
    for start in range(0, len(runs), CHUNK):
        details |= await engine.cache.details([run.run_id for run in runs[start : start + CHUNK]])
    earlier = await _continued_from(engine)
    return tuple(
        RunView(run, details.get(run.run_id), run.run_id in stuck, earlier.get(run.run_id), now) for run in runs
    )


async def _continued_from(engine: "Engine") -> dict[str, str]:
    actions = await engine.ledger.actions(kinds={"run.continue"}, states={"confirmed"}, limit=10_000)
    return {
        action.result_id: action.subject
        for action in actions
        if action.result_id is not None and action.result_id != action.subject
    }


def badge(status: str) -> str:
    """The status with its glyph."""
    glyph, _ = BADGES.get(status, ("·", ""))
    return f"{glyph} {status}"


def _status(view: RunView) -> str:
    marks = ["stuck"] if view.stuck else []
    if view.presence != "current":
        marks.append(view.presence)
    return badge(view.run.status) + (f" ({', '.join(marks)})" if marks else "")


def _tone(view: RunView) -> str:
    return BADGES.get(view.run.status, ("", ""))[1]


COLUMNS: Final[tuple[Column[RunView], ...]] = (
    Column("status", _status, "status", lambda v: v.run.status, tone=_tone),
    Column("repository", lambda v: v.run.repository.label, "repository", flexible=True),
    Column("branch", lambda v: v.run.branch_name, "branch_name", flexible=True),
    Column("started", lambda v: age(v.run.created_at, v.now), "created_at", lambda v: rfc3339(v.run.created_at)),
    Column("took", lambda v: v.took, "updated_at", lambda v: rfc3339(v.run.updated_at)),
    Column("run", lambda v: v.run.run_id, "run_id"),
)
