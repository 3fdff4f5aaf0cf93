"""Writes and runs as commands print them: JSON with the service's own fields as received, and rows of a table."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from msgspec import Struct

from app.cli.output import Column, facts
from app.engine.times import exact_ago, rfc3339, span
from app.runs.document import as_received, run_document
from storage.records import (
    CANCELLED,
    STATUS_BY_NAME,
    WRITE_KINDS,
    Action,
    ActionFilter,
    ActionKind,
    Run,
    RunDetail,
    RunSummary,
)

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.engine.files import ProfileFiles


def unsent_document(kind: ActionKind) -> dict[str, object]:
    """The document of a write that was refused before there was an action: the same fields, all null."""
    unsent: dict[str, object] = {"action_id": None, "kind": kind, "state": "not_sent", "base_url": None}
    return unsent | {WRITE_KINDS[kind].made: None, "warnings": []}


def write_document(action: Action) -> dict[str, object]:
    """The document of a write: its action and its result (null until known)."""
    made = as_received(action.response_json) or None
    if made is None and action.resolution == "created" and action.result_id is not None:
        made = {WRITE_KINDS[action.kind].fields[0]: action.result_id}  # A user named it: only its id is known.
    if made is not None and (action.kind, action.state) == ("run.cancel", "confirmed"):
        made["outcome"] = CANCELLED
    document = facts(action, "action_id kind state base_url") | {WRITE_KINDS[action.kind].made: made}
    return document if action.error is None else document | {"error": error_document(action)}


def error_document(action: Action) -> dict[str, object] | None:
    """The action's error as JSON; None: it is confirmed, or still open."""
    return None if action.error is None else facts(action.error, "kind message http_status error_code")


def action_document(action: Action) -> dict[str, object]:
    """A whole entry of the ledger."""
    names = "action_id kind state key actor base_url path created_at sending_at settled_at result_id resolution"
    return {
        **facts(action, f"{names} superseded_by"),
        **facts(action.author, "user host surface"),
        "resolved_at": rfc3339(action.resolved_at),
        "resolved_by": action.resolved_by.name or None,
        "subject": action.subject or None,
        "body": json.loads(action.body_json),
        "response": as_received(action.response_json) or None,
        "error": error_document(action),
    }


def subject(action: Action) -> str:
    """The subject of the write, in a few words."""
    if action.subject:
        return action.subject
    if action.kind in {"agent.start", "run.cancel", "invitation.resend"}:
        return unquote(action.path.split("/")[-2])
    body = as_received(action.body_json)
    return str(body.get("project_path") or body.get("project_id") or body.get("instructions") or action.path)


def state_text(action: Action) -> str:
    """An action's state in words, and whether a user resolved it."""
    by_hand = {"sent_again": " (sent again)", None: ""}.get(action.resolution, " (by hand)")
    return action.state.replace("_", " ") + by_hand


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
        """As JSON."""
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
    """By run: the run whose conversation it continues, if the service gave the continuation another id."""
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
"""With what is known of results; an unknown value is an empty cell in CSV."""
