"""Finding one run for an id, and runs as commands print them: as JSON, and as rows of a table.

The API has no call for one run (spec 4.2).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app.cli.exits import command_error
from app.cli.output import Column, progress_bar
from app.engine.text import safe_text
from app.engine.times import exact_ago, rfc3339, span
from app.runs.document import run_document
from storage.records import STATUS_BY_NAME, ActionFilter, Run, RunDetail, RunFilter, RunSort, RunSummary

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from app.engine.files import ProfileFiles

SHORTEST_PART: Final = 4
"""Characters; a shorter part would match by accident."""
CACHED_HINT: Final = "Show earlier results with --cached."
CHUNK: Final = 500


class RunLookup(Struct, frozen=True):
    """Finds runs for a command: by the id, or by a beginning or an end of it that fits one cached run only.

    Raises:
        CommandFailedError: There is no such run, or the part is ambiguous.
        ApiError: The service could not be asked.
    """

    engine: "Engine"

    async def find_cached(self, text: str) -> Run:
        """The cached run."""
        if (run := await self._find_held(text)) is None:
            message = f"No run {text} in the cache. Leave out --cached to ask the service."
            raise command_error("not_found", message, run_id=text)
        return run

    async def find_current(self, text: str) -> Run:
        """Fetch the run from the service."""
        if (run := await self._find_held(text)) is None:
            return await self._from_service(text)
        if not await self.engine.runs.look_up(run):
            await self.engine.runs.refresh()
        return await self._find_held(run.run_id) or run

    async def find(self, text: str) -> Run:
        """The run from the cache; if that has none, from the service."""
        return await self._find_held(text) or await self._from_service(text)

    async def to_change(self, text: str, report: Callable[[str], None]) -> Run:
        """Like `named`, but also reports which run a partial id means."""
        run = await self.find(text)
        if run.run_id != text:
            report(f"{text} is the run {run.run_id}.")
        return run

    async def _find_held(self, text: str) -> Run | None:
        if not text.strip():
            raise command_error(
                "usage", "Name a run by its id or the beginning or the end of it. See: runwarden runs list"
            )
        if (detail := await self.engine.cache.detail(text)) is not None:
            return detail.run
        if len(text) < SHORTEST_PART:
            return None
        matching = list[str]()
        offset = 0
        while rows := await self.engine.cache.rows(RunFilter(search=text), RunSort(), offset=offset, limit=200):
            matching += [row.run_id for row in rows if row.run_id.startswith(text) or row.run_id.endswith(text)]
            offset += len(rows)
        if len(matching) > 1:
            candidates = matching[:10]
            names = ", ".join(candidates) + (", …" if len(matching) > len(candidates) else "")
            message = f"{text} matches {len(matching)} runs, write more of the id: {names}"
            raise command_error("ambiguous", message, candidates=[*candidates])
        return await self._find_held(matching[0]) if matching else None

    async def _from_service(self, text: str) -> Run:
        """Fetch the newest runs, then older ones that are not here, until the run is among them."""
        async for _ in self.engine.listing.pages(RunFilter(), limit=self.engine.profile.poll.page_size):
            pass
        with progress_bar(self.engine, f"Looking for {safe_text(text, limit=60)}"):
            while (run := await self._find_held(text)) is None and await self.engine.backfill.fetch_older():
                pass
        if run is not None:
            return run
        whole = (await self.engine.cache.coverage()).whole
        message = f"The service has no run {text}." if whole else f"No run {text} was found at the service."
        raise command_error("not_found", f"{message} See: runwarden runs list", run_id=text)


class RunDocument(Struct, frozen=True):
    """One run with the facts that commands print."""

    run: Run
    detail: RunDetail | None
    """None if the run is not cached."""
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
        """The known part of the run's results."""
        return self.detail.summary if self.detail else RunSummary()

    @property
    def findings(self) -> str | None:
        """The counts of the run's findings; None if unknown."""
        if self.summary.findings is None:
            return None
        return str(self.summary.findings)

    @property
    def presence(self) -> str:
        """Whether the service still shows the run."""
        return self.detail.presence if self.detail else "current"

    @property
    def status(self) -> str:
        """The status with a glyph, whether the run is stuck, and whether the service still shows it."""
        marks = ["stuck"] * self.is_stuck + [self.presence] * (self.presence != "current")
        return badge(self.run.status) + (f" ({', '.join(marks)})" if marks else "")

    @property
    def took(self) -> str:
        """How long the run worked until it finished, or until now."""
        seconds = self.detail.took.until(self.now) if self.detail else None
        return "—" if seconds is None else span(seconds, pads_hours=False)


async def run_documents(
    engine: "Engine | ProfileFiles", runs: Sequence[Run], continued: Mapping[str, str] | None = None
) -> tuple[RunDocument, ...]:
    """These runs with the data of cache and ledger; `continued` is as of `continued_from`."""
    ahead = (await engine.cache.budget()).clock_ahead
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
    glyph = STATUS_BY_NAME[status].glyph if status in STATUS_BY_NAME else "·"
    return f"{glyph} {status or '(no status)'}"


_TONES: Final = {name: status.tone for name, status in STATUS_BY_NAME.items()}
COLUMNS: Final[tuple[Column[RunDocument], ...]] = (
    Column("status", lambda v: v.status, "status", lambda v: v.run.status, tone=lambda v: _TONES.get(v.run.status, "")),
    Column("repository", lambda v: v.run.repository.label, "repository", flexible=True),
    Column("branch", lambda v: v.run.branch_name, "branch_name", flexible=True),
    Column("started", lambda v: exact_ago(v.run.created_at, v.now), "created_at", lambda v: rfc3339(v.run.created_at)),
    Column("took", lambda v: v.took, "updated_at", lambda v: rfc3339(v.run.updated_at)),
    Column("run", lambda v: v.run.run_id, "run_id"),
)
EXPORTED: Final = (
    *COLUMNS,
    Column[RunDocument]("agent", lambda v: v.summary.agent or "?", "agent", lambda v: v.summary.agent),
    Column[RunDocument]("findings", lambda v: v.findings or "?", "findings", lambda v: v.findings),
)
"""The columns of an export, including known results; an unknown value is an empty cell in CSV."""
