"""`runs wait`, and the look-up of one run by its id, for which the API has no call (spec 4.2)."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from app.api.errors import ApiError, ForbiddenError, NotAuthorizedError, RateLimitedError
from app.cli.context import Invocation
from app.cli.exits import Exit, Failure, failed
from app.cli.options import FactCommand, as_duration, async_command
from app.cli.output.documents import write_document
from app.cli.output.progress import progress_bar
from app.cli.output.run_documents import COLUMNS, badge, views
from app.cli.writes import tell
from app.run_document import as_received
from app.text import safe_text
from app.times import rfc3339
from storage.records import ACTIVE_STATUSES, Action, Coverage, Run, RunFilter, RunSort

if TYPE_CHECKING:
    from app.engine import Engine

WINDOW: Final = 200
"""Cached rows searched for a part of an id at a time."""
SHORTEST_PART: Final = 4
"""Characters; a shorter part would match by accident."""
MOST_CANDIDATES: Final = 10


@dataclass(frozen=True, slots=True)
class RunLookup:
    """Finds runs for a command: by the id, or by a beginning or an end of it that fits one cached run only."""

    engine: "Engine"

    async def cached(self, text: str) -> Run:
        """The cached run with that id or unique part.

        Raises:
            CommandFailedError: There is none, or the part is ambiguous.
        """
        run = await self._held(text)
        if run is None:
            raise failed("not_found", f"No run {text} was seen. Leave out --cached to ask the service.", run_id=text)
        return run

    async def current(self, text: str) -> Run:
        """The run with that id or unique part, as the service has it now.

        Raises:
            CommandFailedError: The service has no such run, or the part is ambiguous.
            ApiError: The service could not be asked.
        """
        held = await self._held(text)
        if held is None:
            return await self._from_service(text)
        await self.engine.runs.look_up(held)
        return await self._held(held.run_id) or held

    async def named(self, text: str) -> Run:
        """The run with that id or unique part, from the cache or else the service.

        Raises:
            CommandFailedError: There is no such run, or the part is ambiguous.
            ApiError: The service could not be asked.
        """
        return await self._held(text) or await self._from_service(text)

    async def to_change(self, text: str, tell: Callable[[str], None]) -> Run:
        """As `named`; reports which run a part of an id stands for."""
        run = await self.named(text)
        if run.run_id != text:
            tell(f"{text} is the run {run.run_id}.")
        return run

    async def _held(self, text: str) -> Run | None:
        if not text.strip():
            raise failed("usage", "Name a run by its id or the beginning or the end of it. See: runwarden runs list")
        detail = await self.engine.cache.detail(text)
        if detail is not None:
            return detail.run
        if len(text) < SHORTEST_PART:
            return None
        found = await self._by_part(text)
        return None if found is None else await self._held(found)

    async def _by_part(self, part: str) -> str | None:
        matching: list[str] = []
        offset = 0
        while rows := await self.engine.cache.rows(RunFilter(search=part), RunSort(), offset=offset, limit=WINDOW):
            matching += [row.run_id for row in rows if row.run_id.startswith(part) or row.run_id.endswith(part)]
            offset += len(rows)
        return _only(part, matching)

    async def _from_service(self, text: str) -> Run:
        """Fetch the newest runs, then older ones that are not here, until the run is among them."""
        async for _ in self.engine.listing.pages(RunFilter(), limit=self.engine.profile.poll.page_size):
            pass
        before: tuple[Coverage, int] | None = None
        with progress_bar(self.engine, f"Looking for {safe_text(text, limit=60)}"):
            while (found := await self._held(text)) is None and before != (before := await self._extent()):
                await self.engine.backfill.fetch_older()
        if found is not None:
            return found
        whole = (await self.engine.cache.coverage()).whole
        message = f"The service has no run {text}." if whole else f"No run {text} was found in what the service shows."
        raise failed("not_found", f"{message} See: runwarden runs list", run_id=text)

    async def _extent(self) -> tuple[Coverage, int]:
        return await self.engine.cache.coverage(), await self.engine.cache.count(RunFilter())


def _only(part: str, matching: list[str]) -> str | None:
    if len(matching) > 1:
        candidates = matching[:MOST_CANDIDATES]
        more = ", …" if len(matching) > len(candidates) else ""
        message = f"{part} matches {len(matching)} runs, write more of the id: {', '.join(candidates)}{more}"
        raise failed("ambiguous", message, candidates=list(candidates))
    return matching[0] if matching else None


DEFAULT_TIMEOUT: Final = "30m"
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 5.0
GROWTH: Final = 1.3
MOST_LOOK_UPS: Final = 3
"""Runs looked up one by one; for more, a sweep of all active runs is cheaper."""


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The result of waiting for one run."""

    outcome: Literal["ended", "waiting", "lost", "unlisted"]
    """`unlisted`: no run with that id has appeared in the service's list so far."""
    run: Run | None


F = TypeVar("F", bound=Callable[..., Any])


def wait_options(function: F) -> F:
    """Add the options of a command that starts a run, and may wait for its end."""
    timeout = click.option(
        "--timeout",
        callback=as_duration,
        default=DEFAULT_TIMEOUT,
        show_default=True,
        metavar="TIME",
        help="How long to wait.",
    )
    return click.option("--wait", "waits", is_flag=True, help="Wait until the run ends.")(timeout(function))


@click.command("wait", cls=FactCommand, short_help="Wait until runs have ended.")
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN_ID...")
@click.option(
    "--timeout",
    "patience",
    callback=as_duration,
    default=DEFAULT_TIMEOUT,
    show_default=True,
    metavar="TIME",
    help="Such as 90s, 30m, 2h.",
)
@async_command
async def wait(invocation: Invocation, *, run_ids: tuple[str, ...], patience: timedelta) -> int:
    """Wait until all of these runs have ended: exit code 0 if all completed, 1 if one did not, 3 on a time-out."""
    output = invocation.output
    async with invocation.engine(needs_token=True) as engine:
        lookup = RunLookup(engine)
        named = dict.fromkeys([(await lookup.current(text)).run_id for text in run_ids])
        results = await RunWaiter(engine, output.note).until_final(list(named), patience)
        shown = await views(engine, [result.run for result in results.values() if result.run is not None])
        now = engine.clock()
    failure = wait_failure(results)
    more: dict[str, object] = {"as_of": rfc3339(now), "source": "live"}
    if failure is not None and failure.exit is not Exit.FAILED:
        more["error"] = failure.as_json()
    output.listing("runs", [view.document() for view in shown], shown, COLUMNS, more=more)
    if failure is None:
        return Exit.DONE
    if not output.format.is_json:
        output.note(f"runwarden: {failure.message}")
    return failure.exit


@dataclass(frozen=True, slots=True)
class RunWaiter:
    """Polls, ever more slowly, until runs have ended."""

    engine: "Engine"
    tell: Callable[[str], None]
    """Reports progress."""
    may_appear: bool = False
    """Whether a run that is not listed yet is waited for; otherwise it counts as lost."""
    is_stale: bool = False
    """Whether the cache may hold an earlier turn of a run: the service is asked first."""

    async def until_final(self, run_ids: Sequence[str], patience: timedelta) -> Mapping[str, WaitResult]:
        """Wait until each run has ended or is lost, or time is up.

        Temporary faults of the network or the service are waited out; a refused token is not.

        Raises:
            NotAuthorizedError, ForbiddenError: Waiting longer would change nothing.
        """
        deadline = time.monotonic() + patience.total_seconds()
        statuses: dict[str, str] = {}
        examined = set(ACTIVE_STATUSES)
        pause_s = FIRST_PAUSE_S
        if self.is_stale:
            await self._refresh(run_ids, sweep=True)
        while True:
            results = {run_id: await self._look(run_id) for run_id in run_ids}
            self._report(results, statuses)
            remaining_s = deadline - time.monotonic()
            waiting = {
                run_id: statuses.get(run_id, "")
                for run_id, result in results.items()
                if result.outcome in {"waiting", "unlisted"}
            }
            if not waiting or remaining_s <= 0:
                return results
            # A refresh asks for other runs of a status that the spec does not name: it may be learnt as final. A run
            # that is not listed yet has none, and cannot be looked up by its id.
            is_sweep_due = len(waiting) > MOST_LOOK_UPS or not examined.issuperset(waiting.values())
            examined.update(filter(None, waiting.values()))
            asked_for_s = await self._refresh(list(waiting), sweep=is_sweep_due)
            await asyncio.sleep(max(0.0, min(max(pause_s, asked_for_s), remaining_s)))
            pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)

    async def _look(self, run_id: str) -> WaitResult:
        detail = await self.engine.cache.detail(run_id)
        if detail is None:
            return WaitResult("unlisted" if self.may_appear else "lost", None)
        if detail.is_final:
            return WaitResult("ended", detail.run)
        return WaitResult("lost" if detail.presence == "lost" else "waiting", detail.run)

    async def _refresh(self, run_ids: Sequence[str], *, sweep: bool) -> float:
        """Refresh each run; return the seconds to pause, if the service or a fault asks for it."""
        try:
            if sweep:
                await self.engine.runs.refresh()
            else:
                for run_id in run_ids:
                    await RunLookup(self.engine).current(run_id)
        except (NotAuthorizedError, ForbiddenError):
            raise
        except RateLimitedError as error:
            self.tell(f"Still waiting; {error.message}")
            return error.retry_after_s or LONGEST_PAUSE_S
        except ApiError as error:
            self.tell(f"Still waiting; {error.message}")
            return LONGEST_PAUSE_S
        return 0.0

    def _report(self, results: Mapping[str, WaitResult], statuses: dict[str, str]) -> None:
        for run_id, result in results.items():
            if result.run is not None and statuses.get(run_id) != result.run.status:
                statuses[run_id] = result.run.status
                self.tell(f"{run_id}  {badge(result.run.status)}")


def wait_failure(results: Mapping[str, WaitResult]) -> Failure | None:
    """The failure that the results amount to; None: every run completed."""
    lost = [run_id for run_id, result in results.items() if result.outcome == "lost"]
    unlisted = [run_id for run_id, result in results.items() if result.outcome == "unlisted"]
    unended = [run_id for run_id, result in results.items() if result.outcome == "waiting"]
    ended = [result.run for result in results.values() if result.outcome == "ended" and result.run is not None]
    bad = [run for run in ended if run.status != "completed"]
    if bad:
        said = ", ".join(f"{run.run_id} ({run.status})" for run in bad)
        return Failure("run_failed", f"Not completed: {said}.", Exit.FAILED, {"run_ids": [run.run_id for run in bad]})
    if lost:
        message = f"The service no longer shows {', '.join(lost)}."
        return Failure("not_found", message, Exit.NOT_FOUND, {"run_ids": list(lost)})
    if unlisted:
        message = (
            f"Time is up; no run with the id {', '.join(unlisted)} is listed. Whether one works for it is not known."
        )
        return Failure("waited_too_long", message, Exit.TIMED_OUT, {"run_ids": list(unlisted)})
    if unended:
        message = f"Time is up; not ended yet: {', '.join(unended)}."
        return Failure("waited_too_long", message, Exit.TIMED_OUT, {"run_ids": list(unended)})
    return None


async def finish(
    invocation: Invocation, engine: "Engine", action: Action, patience: timedelta | None
) -> Callable[[], Exit]:
    """Wait for the end of the run that a write started, if asked to; the result prints the outcome."""
    if patience is None or action.state != "confirmed" or action.result_id is None or invocation.stopped_by:
        return partial(tell, invocation, action)
    output = invocation.output
    begun = "continued" if action.kind == "run.continue" else "started"
    output.note(f"{action.result_id} was {begun}; waiting for its end.")
    # The run was started: keep its id, even if waiting ends early.
    document = write_document(action)
    invocation.beside_error = document
    # An execution shows as a run of the same id, or not at all (spec 4.4).
    # A run that the cache could not store is not lost: it may still appear.
    may_appear = action.kind == "agent.start" or await engine.cache.detail(action.result_id) is None
    waiter = RunWaiter(engine, output.note, may_appear=may_appear, is_stale=bool(invocation.warnings))
    results = await waiter.until_final([action.result_id], patience)
    result = results[action.result_id]
    if result.run is not None:
        document["run"] = as_received(result.run.raw_json)
    failure = wait_failure(results)
    if failure is None:
        return partial(tell, invocation, action, document, code=Exit.DONE)
    if failure.exit is not Exit.FAILED:
        document["error"] = failure.as_json()
    return partial(_tell_failure, invocation, action, document, failure)


def _tell_failure(invocation: Invocation, action: Action, document: dict[str, object], failure: Failure) -> Exit:
    code = tell(invocation, action, document, code=failure.exit)
    if not invocation.output.format.is_json:
        invocation.output.note(failure.message)
    return code
