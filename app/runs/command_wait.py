"""`runwarden runs wait`, `events` and `sync`: waiting for runs, for changes of status, and for missing history."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from app.api.errors import ApiError, ForbiddenError, NotAuthorizedError, RateLimitedError
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, command_error, of_api_error
from app.cli.options import RUN_IDS, FactCommand, async_command, options_of, reading
from app.cli.output import Column, Document, facts, progress_bar
from app.engine.events import Event, LinkChanged
from app.engine.text import plural, safe_text
from app.engine.times import parse_duration, rfc3339, span
from app.runs.command_rows import COLUMNS, RunLookup, badge, run_documents
from storage.records import ACTIVE_STATUSES, Run, RunFilter
from storage.records.error_kinds import error_kind

if TYPE_CHECKING:
    from app.engine.engine import Engine

HOLD_S: Final = 10.0
"""How long to hold back a failure until the service reports whether it was a cancellation."""
EVENT_COLUMNS: Final = tuple(
    Column[Document](name, name=name) for name in ("at", "run_id", "repository", "branch_name", "from", "to", "cursor")
)
FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 5.0
MAX_LOOK_UPS: Final = 3
"""Runs looked up one by one; for more, a sweep of all active runs is cheaper."""
MAX_REASONS: Final = 20
WAIT_S: Final = 10.0
"""Seconds to wait after a rate limit that names no time."""
F = TypeVar("F", bound=Callable[..., Any])


@click.command("events", cls=FactCommand)
@click.option("--since", metavar="CURSOR", default="", help="Only what came after this event; now: after the last one.")
@click.option("-f", "--follow", is_flag=True, help="Print further changes as they come, and poll like a console.")
@async_command
async def events(invocation: Invocation, *, since: str, follow: bool) -> int:
    """Print changes of status in the order in which this machine saw them, as NDJSON unless --output says otherwise.

    Pass an event's cursor to --since to continue after it: no change is repeated or lost, even if another process
    polled. The newest 100,000 are kept. "from" is null if a run was first seen so; runs that had ended before the
    service first answered are left out.
    """
    output = invocation.output
    if follow and invocation.asked_format is Format.TABLE:
        raise click.UsageError("--follow prints each change as it comes: use --output ndjson or csv")
    if invocation.asked_format is None or (follow and invocation.asked_format is Format.JSON):
        invocation.asked_format = Format.NDJSON
    changed = asyncio.Event()

    def listen(event: Event) -> None:
        changed.set()
        if isinstance(event, LinkChanged) and event.state.subject == "runs":
            problem = event.own_failure or event.state
            if problem.error_message:
                output.note(f"Still following; {problem.error_message}")

    async with invocation.engine(needs_token=True) as engine:
        with invocation.exporting(None, "events", EVENT_COLUMNS) as rows:
            unread: ApiError | None = None
            try:
                await engine.runs.refresh()
            except ApiError as error:
                if follow and not error_kind(error.kind).passes:
                    raise
                unread = error
            if follow:
                engine.events.subscribe(listen)
                engine.start_polling()
            held_since: float | None = None
            try:
                while True:
                    changed.clear()
                    holds = follow and (held_since is None or time.monotonic() < held_since + HOLD_S)
                    if (page := await engine.cache.events(since, 500, holds_failures=holds)) is None:
                        reason = f"The cursor {since} is too old, or of another profile or a cache that was replaced."
                        fix = "Leave out --since to print what is kept, and compare with: runwarden runs list"
                        raise command_error("not_found", f"{reason} {fix}", cursor=since)
                    rows.add(
                        facts(event, "cursor run_id repository branch_name")
                        | {"from": event.old, "to": event.new}
                        | facts(event, "at")
                        for event in page.events
                    )
                    rows.output.flush()
                    held_since = (held_since or time.monotonic()) if page.is_held else None
                    if since != page.cursor:
                        since = page.cursor
                        continue
                    if not follow:
                        break
                    with suppress(TimeoutError):
                        async with asyncio.timeout(HOLD_S if page.is_held else None):
                            await changed.wait()
            except asyncio.CancelledError:
                if not follow or not since:
                    raise
                # ^C is the usual way to stop and no error; the exit code is the signal's.
                output.note(f"Stopped. Continue with: {invocation.command_line} runs events --follow --since {since}")
                return Exit.DONE
            if unread is not None:
                raise unread
            rows.end({"cursor": since})
    return Exit.DONE


class WaitResult(Struct, frozen=True):
    """The result of waiting for one run."""

    outcome: Literal["ended", "waiting", "lost", "unlisted"]
    """`unlisted`: no run with that id has appeared in the service's list so far."""
    run: Run | None
    reason: str = ""
    """Why the run did not complete; empty if it did or the reason is unknown."""

    @property
    def has_failed(self) -> bool:
        """Whether the run ended with any status except completed."""
        return self.outcome == "ended" and self.run is not None and self.run.status != "completed"


def _timeout(name: str, text: str) -> Callable[[F], F]:
    usual: dict[str, Any] = {"default": "30m", "show_default": True, "metavar": "TIME"}
    # A bare number means seconds, as usual on a command line.
    read = reading(
        lambda time: parse_duration(f"{time.strip()}s" if time.strip().replace(".", "", 1).isdecimal() else time)
    )
    return click.option("--timeout", name, callback=read, help=text, **usual)


wait_options: Final = options_of(
    click.option("--wait", "waits", is_flag=True, help="Wait until the run ends."),
    _timeout("timeout", "How long to wait."),
)
"""The options of a command that starts a run, and may wait until it finishes."""


@click.command("wait", cls=FactCommand)
@RUN_IDS
@_timeout("patience", "Such as 90s, 30m, 2h.")
@click.option("--fail-fast", is_flag=True, help="Stop waiting at the first run that fails or is no longer listed.")
@async_command
async def wait(invocation: Invocation, *, run_ids: tuple[str, ...], patience: timedelta, fail_fast: bool) -> int:
    """Wait until all of these runs have ended: exit code 0 if all completed, 1 if one did not, 3 on a time-out."""
    output = invocation.output
    async with invocation.engine(needs_token=True) as engine:
        lookup = RunLookup(engine)
        ids = dict.fromkeys([(await lookup.find_current(text)).run_id for text in run_ids])
        results = await RunWaiter(engine, output.note, fail_fast=fail_fast).until_final(list(ids), patience)
        documents = await run_documents(engine, [result.run for result in results.values() if result.run is not None])
        now = engine.clock()
    failure = wait_failure(results)
    bad = [
        {"run_id": result.run.run_id, "status": result.run.status, "reason": result.reason or None}
        for result in results.values()
        if result.run is not None and result.has_failed
    ]
    more: dict[str, object] = {"failed": bad, "as_of": rfc3339(now), "source": "live"}
    if failure is not None and failure.exit is not Exit.FAILED:
        more["error"] = failure.as_json()
    output.listing("runs", [view.document() for view in documents], COLUMNS, documents, more=more)
    if failure is None:
        return Exit.DONE
    if not output.format.is_json:
        output.note(f"runwarden: {failure.message}")
    return failure.exit


class RunWaiter(Struct, frozen=True):
    """Polls, ever more slowly, until runs have ended."""

    engine: "Engine"
    report: Callable[[str], None]
    may_appear: bool = False
    """Whether to wait for a run that is not listed yet; otherwise it counts as lost."""
    is_stale: bool = False
    """Whether the cache may hold an earlier turn of a run: the service is asked first."""
    fail_fast: bool = False
    """Whether to stop as soon as one of the runs has failed or is lost."""

    async def until_final(self, run_ids: Sequence[str], patience: timedelta) -> Mapping[str, WaitResult]:
        """Wait until each run has ended or is lost, or until the time-out.

        Temporary faults of the network or the service are waited out; a refused token is not.

        Raises:
            NotAuthorizedError, ForbiddenError: Waiting longer would change nothing.
        """
        deadline = time.monotonic() + patience.total_seconds()
        statuses = dict[str, str]()
        reasons = dict[str, str]()
        examined = set(ACTIVE_STATUSES)
        pause_s = FIRST_PAUSE_S
        if self.is_stale:
            await self._refresh(run_ids, sweep=True)
        while True:
            results = {run_id: await self._result(run_id) for run_id in run_ids}
            for run_id, result in results.items():
                if result.run is not None and statuses.get(run_id) != result.run.status:
                    statuses[run_id] = result.run.status
                    self.report(f"{run_id}  {badge(result.run.status)}")
            remaining_s = deadline - time.monotonic()
            waiting = {
                run_id: statuses.get(run_id, "")
                for run_id, result in results.items()
                if result.outcome in {"waiting", "unlisted"}
            }
            is_bad = any(result.has_failed or result.outcome == "lost" for result in results.values())
            if not waiting or remaining_s <= 0 or (self.fail_fast and is_bad):
                await self.engine.runs.learn_of_failures()
                ended = {run_id: await self._result(run_id) for run_id in run_ids}
                for run_id in [run_id for run_id, result in ended.items() if result.has_failed][:MAX_REASONS]:
                    ended[run_id] = replace(ended[run_id], reason=await self._reason(run_id))
                return ended
            # A refresh asks for other runs of a status that the spec does not name: it may be learnt as final. A run
            # that is not listed yet has none, and its id cannot be looked up.
            is_sweep_due = len(waiting) > MAX_LOOK_UPS or not examined.issuperset(waiting.values())
            examined.update(filter(None, waiting.values()))
            asked_for_s = await self._refresh(list(waiting), sweep=is_sweep_due)
            for run_id in [run_id for run_id in waiting if statuses.get(run_id) == "queued"][:MAX_LOOK_UPS]:
                reason = await self._reason(run_id)
                if reason and reasons.get(run_id) != reason:
                    self.report(f"{run_id}  {reason}")
                reasons[run_id] = reason
            await asyncio.sleep(max(0.0, min(max(pause_s, asked_for_s), remaining_s)))
            pause_s = min(pause_s * 1.3, MAX_PAUSE_S)

    async def _reason(self, run_id: str) -> str:
        return safe_text(await self.engine.extension.reason(run_id))

    async def _result(self, run_id: str) -> WaitResult:
        if (detail := await self.engine.cache.detail(run_id)) is None:
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
                    await RunLookup(self.engine).find_current(run_id)
        except (NotAuthorizedError, ForbiddenError):
            raise
        except ApiError as error:
            self.report(f"Still waiting; {error.message}")
            return (isinstance(error, RateLimitedError) and error.retry_after_s) or MAX_PAUSE_S
        return 0.0


def wait_failure(results: Mapping[str, WaitResult]) -> CommandFailedError | None:
    """The command's failure, given the results; None if every run completed."""
    bad = {
        run_id: f"{run_id} ({result.run.status}{f': {result.reason}' if result.reason else ''})"
        for run_id, result in results.items()
        if result.run is not None and result.has_failed
    }
    if bad:
        message = f"Not completed: {', '.join(bad.values())}."
        return CommandFailedError("run_failed", message, Exit.FAILED, {"run_ids": [*bad]})
    for outcome, kind, message in (
        ("lost", "not_found", "The service no longer shows {}."),
        ("unlisted", "waited_too_long", "Time is up; no run with the id {} is listed. Whether one exists is unknown."),
        ("waiting", "waited_too_long", "Time is up; not ended yet: {}."),
    ):
        if ids := [run_id for run_id, result in results.items() if result.outcome == outcome]:
            return command_error(kind, message.format(", ".join(ids)), run_ids=[*ids])
    return None


@click.command("sync", cls=FactCommand)
@click.option(
    "--days",
    type=click.FloatRange(min=0, max=36_500),
    metavar="N",
    help="Days before the newest run. Default: history.days and history.runs of the configuration.",
)
@async_command
async def sync(invocation: Invocation, /, *, days: float | None) -> int:
    """Fetch the missing history, newest first; cached runs are not fetched again.

    It may be stopped at any time: the next one, or a console, continues from there.
    """
    async with invocation.engine(needs_token=True) as engine:
        try:
            with progress_bar(engine) as bar:
                for fetch in (engine.runs.refresh, partial(engine.backfill.run, days=days, is_asked=True)):
                    while True:
                        try:
                            await fetch()
                            break
                        except RateLimitedError as error:
                            wait_s = WAIT_S if error.retry_after_s is None else error.retry_after_s
                            bar.note(f"waiting as the service asked; {span(wait_s, pads_hours=False)} left")
                            await asyncio.sleep(wait_s)
        except ApiError as error:
            raise of_api_error(error, hint="The runs fetched so far are kept.") from error
        coverage = await engine.cache.coverage()
        held = await engine.cache.count(RunFilter())
        done = engine.backfill.progress.done_runs
        dropped = engine.backfill.progress.dropped
    # Without a walk from the newest run, newer ones may be missing.
    complete_since = coverage.complete_since if coverage.as_of else None
    document: dict[str, object] = {
        "fetched": done,
        "held": held,
        "complete_since": rfc3339(complete_since),
        "whole": coverage.whole and complete_since is not None,
        "as_of": rfc3339(coverage.as_of),
        **({"dropped": dropped} if dropped else {}),
    }
    since = "the beginning" if document["whole"] else rfc3339(complete_since) or "no known time"
    if coverage.is_disordered:
        since = "unknown: this service's list is out of order"
    facts = [("fetched", plural(done, "run")), ("held", plural(held, "run")), ("complete since", since)]
    if dropped:
        facts.append(("left out", f"{dropped:,} entries without a usable run id"))
    invocation.output.record(document, facts)
    return Exit.DONE
