"""`runwarden runs retry`: runs that failed, once more with what began their last turn."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from app.actions.actions import retry_key
from app.actions.asked import Asked, what_began
from app.actions.command_writes import (
    DRY_RUN_OPTION,
    BatchRow,
    WriteOptions,
    carry_out,
    each_in_turn,
    exit_of,
    rehearse,
    request_document,
    tell_batch,
)
from app.actions.refusals import ActionRefusedError, BlockedError
from app.api.errors import ApiError
from app.api.requests import WriteRequest
from app.cli.context import Invocation
from app.cli.documents import error_document
from app.cli.exits import CommandFailedError, Exit, Failure, failed
from app.cli.options import RUN_IDS, FactCommand, as_key, async_command
from app.cli.output import Column
from app.cli.running import asking
from app.engine.text import plural
from app.runs.command_lookup import RunLookup
from app.runs.command_wait import RunWaiter, wait_failure, wait_options
from app.runs.document import spec_fields
from storage.records import Action, Run

if TYPE_CHECKING:
    from app.engine.engine import Engine

RetryOutcome = Literal[
    "to_send", "sent", "sent_before", "refused", "blocked", "rejected", "unknown", "not_sent", "not_tried"
]
OWN_FAULT: Final = frozenset({"rejected", "not_found"})
"""Kinds of errors that concern one run only, so that the next one may succeed."""
OUTCOMES: Final[dict[str, RetryOutcome]] = {"confirmed": "sent", "rejected": "rejected", "not_sent": "not_sent"}


class Retry(Struct, frozen=True):
    """A retried run and its outcome."""

    run_id: str
    outcome: RetryOutcome
    request: WriteRequest | None = None
    """The request to send. None: the retry is refused."""
    key: str = ""
    action: Action | None = None
    problem: str = ""
    """Why the retry is refused."""
    run: Run | None = None
    """The resulting run, after waiting for its end."""
    asked: Asked | None = None
    """What began its last turn, and who asked; None: not known."""

    @property
    def ends_the_batch(self) -> bool:
        """Whether the batch stops here, because the next retry would most likely fail in the same way."""
        error = self.action.error if self.action else None
        return self.outcome in {"unknown", "not_sent", "rejected"} and (error is None or error.kind not in OWN_FAULT)

    @property
    def made(self) -> str:
        """The id of the resulting run, if it is known."""
        return (self.action.result_id if self.action else None) or ""

    @property
    def reason(self) -> str:
        """Why it was not sent, or failed."""
        return self.problem or (self.action.error.message if self.action and self.action.error else "")

    @property
    def exit(self) -> Exit:
        """The exit code of this retry alone."""
        if self.outcome in {"refused", "blocked"}:
            return Exit.USAGE if self.outcome == "refused" else Exit.UNKNOWN_OUTCOME
        return Exit.DONE if self.action is None else exit_of(self.action)

    def document(self, base_url: str) -> dict[str, object]:
        """As JSON."""
        is_shown = self.outcome == "to_send" and self.request is not None
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            "action_id": self.action.action_id if self.action else None,
            "result_id": self.made or None,
            "problem": self.problem or None,
            "error": error_document(self.action) if self.action else None,
            "request": request_document(base_url, self.request) if is_shown and self.request else None,
            "run": spec_fields(self.run) if self.run else None,
            "asked_by": (self.asked.caller or None) if self.asked else None,
        }


@click.command("retry", cls=FactCommand)
@RUN_IDS
@click.option("--yes", is_flag=True, help="Send without asking.")
@click.option(
    "--key",
    "--idempotency-key",
    "key",
    callback=as_key,
    metavar="PREFIX",
    help="Send each run once under the key PREFIX-RUN_ID. Default: once for each of its failures.",
)
@DRY_RUN_OPTION
@wait_options
@async_command
async def retry(invocation: Invocation, /, *, run_ids: tuple[str, ...], yes: bool, **given: Any) -> int:
    """Retry failed runs with the same instructions, repository and branch.

    What others asked is known where the service has the results extension. After one question the retries are sent one
    after the other, in batches of send_cap. An interrupted command can simply be repeated: each failure is retried
    once.
    """
    options, failure = WriteOptions(**given), None
    async with invocation.writer(dry_run=options.dry_run) as engine:
        planned = [await plan(engine, run_id, options.key) for run_id in run_ids]
        results = list({each.run_id: each for each in planned}.values())
        count = sum(each.outcome == "to_send" for each in results)
        if count and not options.dry_run:
            if not yes:
                cap = engine.settings.console.send_cap
                others = len(results) - count
                left_out = f" and leave out {others}" if others else ""
                batches = f", {cap} at a time" if count > cap else ""
                if not sys.stdin.isatty():
                    raise failed("not_confirmed", f"Nothing was sent: give --yes to retry {plural(count, 'run')}.")
                with asking(invocation):
                    if not click.confirm(f"Retry {plural(count, 'run')}{left_out}{batches}?", err=True):
                        raise failed("not_confirmed", "Nothing was sent.")
            results = await _send(invocation, engine, results)
        if options.waits and not options.dry_run:
            results, failure = await _waited(invocation, engine, results, options.timeout)
        base_url = engine.client.base_url
    rows = [BatchRow(each.run_id, each.action, each.document(base_url), each.exit) for each in results]
    return tell_batch(invocation, rows, COLUMNS, results, base_url, failure=failure, dry_run=options.dry_run)


async def plan(engine: "Engine", text: str, prefix: str | None = None) -> Retry:
    """What retrying a run would send, or why it would not be sent."""
    try:
        run = await RunLookup(engine).current(text)
    except CommandFailedError as error:
        return Retry(text, "refused", problem=error.failure.message)
    detail = await engine.cache.detail(run.run_id)
    if detail is None or not detail.is_final:
        return Retry(run.run_id, "refused", problem=f"It has not ended: {run.status}.")
    if run.status == "completed":
        return Retry(run.run_id, "refused", problem="It completed.")
    try:
        found = await what_began(engine.ledger, engine.extension.turns, detail)
    except ApiError as error:
        return Retry(
            run.run_id, "refused", problem=f"The service could not be asked for its instructions: {error.message}"
        )
    if not isinstance(found, Asked):
        return Retry(run.run_id, "refused", problem=found.reason)
    # Each failure is retried once; a run that works and fails again has a new failure, and so another key.
    key = f"{prefix}-{run.run_id}" if prefix else retry_key(run)
    return await _checked(engine, Retry(run.run_id, "to_send", found.request, key, asked=found))


async def _checked(engine: "Engine", planned: Retry) -> Retry:
    """The plan, unless it was carried out before or would be refused."""
    if planned.request is None:
        return planned
    try:
        before = await rehearse(engine, planned.request, key=planned.key, again=False)
    except BlockedError as error:
        return replace(planned, outcome="blocked", action=error.existing)
    except (ActionRefusedError, CommandFailedError) as error:
        return replace(planned, outcome="refused", problem=str(error))
    if before is None:
        return planned
    return replace(planned, outcome="sent_before" if before.state == "confirmed" else "unknown", action=before)


async def _send(invocation: Invocation, engine: "Engine", planned: Sequence[Retry]) -> list[Retry]:
    is_stopped = False
    cap = engine.settings.console.send_cap
    base_url = engine.client.base_url
    batches = -(-len(planned) // cap)

    async def send(place: tuple[int, Retry]) -> tuple[Retry, str, str]:
        nonlocal is_stopped
        n, each = place
        result = each if is_stopped else await _sent(engine, each)
        is_stopped = is_stopped or (result is not each and result.ends_the_batch)
        batch = f"  batch {n // cap + 1} of {batches}" if batches > 1 else ""
        return result, "not_tried" if result.outcome == "to_send" else result.outcome, f"{each.run_id}{batch}"

    def done(results: Sequence[Retry]) -> dict[str, object]:
        return {"rows": [each.document(base_url) for each in results], "base_url": base_url}

    results = await each_in_turn(invocation, list(enumerate(planned)), send, done, "sent")
    results += planned[len(results) :]
    return [replace(each, outcome="not_tried") if each.outcome == "to_send" else each for each in results]


async def _sent(engine: "Engine", planned: Retry) -> Retry:
    if planned.outcome != "to_send" or planned.request is None:
        return planned
    now = await _checked(engine, planned)
    if now.outcome != "to_send":
        return now
    action = await carry_out(engine, planned.request, key=planned.key)
    return replace(planned, outcome=OUTCOMES.get(action.state, "unknown"), action=action)


async def _waited(
    invocation: Invocation, engine: "Engine", results: Sequence[Retry], patience: timedelta
) -> tuple[list[Retry], Failure | None]:
    """Wait for the resulting runs to end, unless something stopped the batch."""
    made = {each.run_id: each.made for each in results if each.outcome in {"sent", "sent_before"} and each.made}
    is_stopped = invocation.stopped_by or any(each.outcome == "not_tried" or each.ends_the_batch for each in results)
    if is_stopped or not made:
        return list(results), None
    base_url = engine.client.base_url
    # Report the sent retries, even if waiting ends early.
    invocation.beside_error = {"rows": [each.document(base_url) for each in results], "base_url": base_url}
    invocation.output.note(
        f"{plural(len(made), 'run')} sent; waiting for the end of {'it' if len(made) == 1 else 'them'}."
    )
    waiter = RunWaiter(engine, invocation.output.note, may_appear=True, is_stale=bool(invocation.warnings))
    ended = await waiter.until_final(list(dict.fromkeys(made.values())), patience)
    runs = {run_id: ended[result_id].run for run_id, result_id in made.items()}
    return [replace(each, run=runs.get(each.run_id)) for each in results], wait_failure(ended)


COLUMNS: Final[tuple[Column[Retry], ...]] = (
    Column("outcome", lambda r: r.outcome, "outcome"),
    Column("run", lambda r: r.run_id, "run_id", flexible=True),
    Column("made", lambda r: r.made, "result_id", flexible=True),
    Column("ended", lambda r: r.run.status if r.run else "", "status"),
    Column("reason", lambda r: r.reason, "reason", flexible=True),
    Column("action", lambda r: r.action.action_id if r.action else "", "action_id"),
    Column("asked by", lambda r: r.asked.caller if r.asked else "", "asked_by"),
)
