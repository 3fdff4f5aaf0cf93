"""A write as a command: its options, its dry run, sending it once, and its outcome with the fields as received."""

import json
import sys
from asyncio import CancelledError
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from app.actions.actions import NOT_RECORDED, SendCancelledError
from app.actions.batch import BatchResult, BatchSender, BatchWrite
from app.actions.reconciliation import submit_and_settle
from app.actions.refusals import ActionRefusedError, AlreadyAskedError, BlockedError
from app.api.requests import WriteRequest, request_sent
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import EXIT_BY_KIND, CommandFailedError, Exit, command_error
from app.cli.options import FactCommand, as_key, options_of
from app.cli.output import Column, Document, RowProgress, facts
from app.cli.running import asking, raise_if_stopped
from app.engine.text import plural
from app.engine.times import rfc3339
from app.runs.command_wait import RunWaiter, wait_failure
from app.runs.document import as_received, spec_fields, when_heard
from storage.errors import StorageError
from storage.records import CANCELLED, OPEN_STATES, WRITE_KINDS, Action, ActionKind, Run

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from storage.records.decision import Decision

T = TypeVar("T")
W = TypeVar("W", bound=BatchWrite)


async def send_once(sending: Awaitable[T], request: WriteRequest, key: str | None) -> T | Action:
    """Send the request, or rehearse sending; return the result, or the earlier action if the key was used for it."""
    try:
        return await sending
    except AlreadyAskedError as earlier:
        if not earlier.is_for(request):
            action_id = earlier.existing.action_id
            reason = (
                f"The key {key!r} was used for another request ({action_id}). Nothing was sent; choose another key."
            )
            raise command_error("already_asked", reason, action_id=action_id) from earlier
        return earlier.existing


async def rehearse_write(engine: "Engine", request: WriteRequest, key: str) -> BatchResult:
    """Rehearse sending the request as part of a batch; nothing is sent."""
    try:
        before = await send_once(engine.actions.rehearse(request, key=key or None), request, key)
    except BlockedError as error:
        return BatchResult("blocked", error.existing)
    except (ActionRefusedError, CommandFailedError) as error:
        return BatchResult("refused", problem=str(error))
    if before is None:
        return BatchResult("to_send")
    return BatchResult("sent_before" if before.state == "confirmed" else "unknown", before)


async def finish_send(sending: Awaitable[Action]) -> Action:
    """The action after sending; an interrupted command reports whatever outcome is known by then."""
    try:
        return await sending
    except SendCancelledError as cancelled:
        return cancelled.action


def exit_of(action: Action) -> Exit:
    if action.state == "confirmed":
        is_refused = action.kind == "gitlab.onboard" and as_received(action.response_json).get("success") is False
        return Exit.FAILED if is_refused else Exit.DONE
    if action.state in OPEN_STATES:
        return Exit.UNKNOWN_OUTCOME
    if action.state == "not_created" or action.error is None:
        return Exit.USAGE
    return EXIT_BY_KIND.get(action.error.kind, Exit.USAGE)


def exit_of_result(result: BatchResult) -> Exit:
    if result.outcome in {"refused", "blocked"}:
        if result.outcome == "refused":
            return Exit.USAGE
        return Exit.UNKNOWN_OUTCOME
    if result.action is None or result.outcome in {"to_send", "sent_before", "not_tried"}:
        return Exit.DONE
    return exit_of(result.action)


def print_write(
    invocation: "Invocation",
    action: Action,
    document: dict[str, object] | None = None,
    *,
    code: Exit | None = None,
    remark: str = "",
) -> Exit:
    """Print a write, or the document for it, and the warnings; return the exit code, by default the action's own."""
    output = invocation.output
    document = (document or write_document(action)) | {"warnings": list(invocation.warnings)}
    kind = WRITE_KINDS[action.kind]
    made = document.get(kind.made)
    run = document.get("run")
    fields = kind.fields
    if isinstance(made, dict) and isinstance(run, dict) and run is not made:
        # The run of an execution that was waited for.
        made = {**run, **made, "status": run["status"]}
        fields = (*fields, "branch_name")
    pairs = [("action", action.action_id), ("state", action.state)]
    if isinstance(made, dict):
        pairs += [(name, str(made[name])) for name in fields if made.get(name) is not None]
    invocation.outcome = exit_of(action) if code is None else code
    output.record(document, pairs)
    if not output.format.is_json:
        output.note(advice(action, invocation.command_line))
        output.note(remark)
    return invocation.outcome


def print_waiting(invocation: "Invocation", waiting: "Decision") -> Exit:
    """Print a continuation that will be sent when its run ends; return the exit code."""
    run_id = waiting.occurrence.facts["run.id"]
    output = invocation.output
    waits = {"id": waiting.decision_id, "run_id": run_id, "asked_at": rfc3339(waiting.decided_at)}
    document = unsent_document("run.continue") | {"state": "waiting", "waiting": waits}
    output.record(document | {"warnings": list(invocation.warnings)}, [("state", "waiting"), ("run", run_id)])
    if not output.format.is_json:
        output.note(f"A running console or bot sends it when the run ends: {invocation.command_line} watch")
    return Exit.DONE


def advice(action: Action, command_line: str) -> str:
    """Advice on the next step; may be empty."""
    reason = action.error.message if action.error else ""
    match action.state:
        case "unknown" if action.error is not None and action.error.kind == NOT_RECORDED:
            return reason
        case "unknown":
            resolve = f"{command_line} actions resolve {action.action_id} --created ID | --not-created | --send-again"
            remark = "It may have taken effect; it is not sent again automatically."
            return f"The outcome is unknown: {reason.rstrip('.')}. {remark} Check, then: {resolve}"
        case "prepared" | "sending":
            return f"Another process is sending it: {command_line} actions show {action.action_id}"
        case "not_sent":
            return f"Nothing was sent: {reason} You can try again."
        case "rejected":
            return f"The service refused: {reason}"
        case "not_created":
            return "It was resolved as without effect: you can send it again."
        case "confirmed":
            return when_heard(action)


class RunWrite(BatchWrite, frozen=True):
    """A write of a batch about a run, by its id."""

    run: Run | None = None

    def document(self, base_url: str) -> dict[str, object]:
        result = self.result
        request = self.request if self.result.outcome == "to_send" else None
        return {
            "run_id": self.name,
            "outcome": result.outcome,
            "action_id": result.action.action_id if result.action else None,
            "result_id": result.result_id or None,
            "problem": result.problem or None,
            "error": error_document(result.action) if result.action else None,
            "request": request_document(base_url, request) if request else None,
            "run": spec_fields(self.run) if self.run else None,
        }


HEADERS: Final[Mapping[str, str]] = {"Authorization": "Bearer ***", "Content-Type": "application/json"}
"""The headers that a dry run shows, with the token masked."""

YES_OPTION: Final = click.option("--yes", is_flag=True, help="Send without asking.")
DRY_RUN_OPTION: Final = click.option(
    "--dry-run", is_flag=True, help="Print the request that would be sent, and send nothing."
)
SEVERITY: Final = (
    Exit.DONE,
    Exit.NOT_FOUND,
    Exit.USAGE,
    Exit.INTERRUPTED,
    Exit.UNREACHABLE,
    Exit.RATE_LIMITED,
    Exit.NOT_AUTHORIZED,
    Exit.UNKNOWN_OUTCOME,
)
"""The exit codes that a row of a batch can have, least severe first."""


class WriteCommand(FactCommand):
    """A command that writes: a refusal before sending prints a write's fields as well."""

    def __init__(self, *args: Any, kind: ActionKind, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.ensure_object(Invocation).beside_error = unsent_document(self.kind)
        return super().parse_args(ctx, args)


write_options: Final = options_of(
    click.option(
        "--key",
        "--idempotency-key",
        "key",
        callback=as_key,
        metavar="KEY",
        help="Send the same request under the same KEY only once, however often it is requested.",
    ),
    DRY_RUN_OPTION,
)


class WriteOptions(Struct, frozen=True):
    """The options of a write, keyed as on the command line."""

    key: str | None = None
    """The same request under the same key is sent once. Without a key, each one is sent."""
    dry_run: bool = False
    again: bool = False
    """Whether an address that has an organization may get another one."""
    waits: bool = False
    timeout: timedelta = timedelta(0)


async def send(invocation: Invocation, request: WriteRequest, options: WriteOptions) -> int:
    """Send the request through the ledger, or rehearse that; print the outcome and return the exit code."""
    async with invocation.writer(dry_run=options.dry_run) as engine:
        report = await perform(invocation, engine, request, options)
    return report()


async def perform(
    invocation: Invocation, engine: "Engine", request: WriteRequest, options: WriteOptions
) -> Callable[[], int]:
    """Send with an engine from `Invocation.writer`, and wait for the run's end if asked to; the result prints that.

    The result is called once the engine is closed: closing may add a warning.
    """
    if options.dry_run:
        rehearsal = engine.actions.rehearse(request, key=options.key, again=options.again)
        existing = await send_once(rehearsal, request, options.key)
        if existing is not None:
            return partial(print_write, invocation, existing)
        return partial(print_request, invocation, engine.client.base_url, request)
    sending = finish_send(submit_and_settle(engine.actions, request, options.key, again=options.again))
    action = await send_once(sending, request, options.key)
    # From here on all failures are reported together with the write's outcome: the id of a started run is kept.
    document = invocation.beside_error = write_document(action)
    if not options.waits or action.state != "confirmed" or action.result_id is None or invocation.stopped_by:
        return partial(print_write, invocation, action)
    output = invocation.output
    begun = "continued" if action.kind == "run.continue" else "started"
    output.note(f"{action.result_id} was {begun}; waiting until it finishes.")
    # An execution appears as a run with the same id, or not at all (spec 4.4).
    # A run that the cache could not store is not lost: it may still appear.
    may_appear = action.kind == "agent.start" or await engine.cache.detail(action.result_id) is None
    waiter = RunWaiter(engine, output.note, may_appear=may_appear, is_stale=bool(invocation.warnings))
    results = await waiter.until_final([action.result_id], options.timeout)
    result = results[action.result_id]
    if result.run is not None:
        document["run"] = spec_fields(result.run)
    if (failure := wait_failure(results)) is None:
        return partial(print_write, invocation, action, document, code=Exit.DONE)
    if failure.exit is not Exit.FAILED:
        document["error"] = failure.as_json()
    return partial(print_write, invocation, action, document, code=failure.exit, remark=failure.message)


def request_document(base_url: str, request: WriteRequest) -> dict[str, object]:
    return {"method": "POST", "url": f"{base_url}{request.path}", "headers": dict(HEADERS), "body": request.body()}


def print_request(invocation: Invocation, base_url: str, request: WriteRequest) -> Exit:
    sent = request_document(base_url, request)
    output = invocation.output
    if output.format is Format.TABLE:
        output.text(f"POST {sent['url']}")
        for name, value in HEADERS.items():
            output.text(f"{name}: {value}")
        output.text("")
        output.print(output.json(sent["body"]))
        return Exit.DONE
    document = {**unsent_document(request.kind), "base_url": base_url, "dry_run": True, "request": sent}
    document["warnings"] = list(invocation.warnings)
    output.record(document, [("method", "POST"), ("url", str(sent["url"])), ("body", output.json(sent["body"]))])
    return Exit.DONE


def print_batch(
    invocation: Invocation,
    rows: Sequence[W],
    columns: Sequence[Column[W]],
    document: Callable[[W, str], Document],
    base_url: str,
    *,
    failure: CommandFailedError | None = None,
    dry_run: bool = False,
) -> Exit:
    """Print the outcomes of a batch and of waiting for it; return the exit code of the row to look at first."""
    documents = [document(row, base_url) for row in rows]
    code = max((exit_of_result(row.result) for row in rows), key=SEVERITY.index, default=Exit.DONE)
    if code is Exit.DONE and failure is not None:
        code = failure.exit
    invocation.outcome = None if dry_run else code
    counts = Counter(entry["outcome"] for entry in documents)
    more = {"outcomes": dict(counts), "base_url": base_url, "warnings": list(invocation.warnings)}
    if failure is not None:
        more["error"] = failure.as_json()
    output = invocation.output
    output.listing("rows", documents, columns, rows, more=more)
    if output.format.is_json:
        return code
    if failure is not None:
        output.note(f"runwarden: {failure.message}")
    for row in rows:
        if row.result.outcome in {"blocked", "unknown"} and row.result.action is not None:
            output.note(f"{row.name}: {advice(row.result.action, invocation.command_line)}")
    return code


def confirm_batch(
    invocation: Invocation, planned: Sequence[BatchWrite], verb: str, consequence: str = "", *, yes: bool
) -> bool:
    """Ask whether to send the pending writes, unless `yes`; return whether there are any. A no ends the command."""
    count = sum(write.result.outcome == "to_send" for write in planned)
    if count and not yes:
        if not sys.stdin.isatty():
            raise command_error(
                "not_confirmed", f"Nothing was sent: give --yes to {verb.lower()} {plural(count, 'run')}."
            )
        others = len(planned) - count
        left_out = f" and leave out {others}" if others else ""
        with asking(invocation):
            if not click.confirm(f"{verb} {plural(count, 'run')}{left_out}{consequence}?", err=True):
                raise command_error("not_confirmed", "Nothing was sent.")
    return count > 0


async def send_batch(
    invocation: Invocation,
    engine: "Engine",
    planned: Sequence[W],
    document: Callable[[W, str], Document],
    usual: str,
    cap: int | None = None,
    past: str = "",
) -> list[W]:
    """Send the pending writes one after the other, until a signal or an outcome stops the batch.

    Outcomes are shown as they come; the `usual` one needs no mention. If the ledger fails, those so far are reported.
    With a `cap`, writes are counted in batches. Unknown outcomes with the error code `past` do not stop it.
    """
    not_tried = BatchResult("not_tried")
    done = 0
    base_url = engine.client.base_url
    rows = [replace(write, result=not_tried) if write.result.outcome == "to_send" else write for write in planned]
    batches = -(-len(rows) // cap) if cap else 1
    sender = BatchSender(lambda request, key: finish_send(submit_and_settle(engine.actions, request, key)), past=past)
    try:
        with closing(RowProgress(invocation.output, len(rows), usual=usual)) as progress:
            for done, write in enumerate(planned):
                raise_if_stopped(invocation)
                if write.result.outcome == "to_send" and write.request is not None and sender.may_send:
                    rows[done] = replace(write, result=await sender.send(write.request, write.key))
                batch = f"  batch {done // cap + 1} of {batches}" if cap and batches > 1 else ""
                progress.count_row(str(document(rows[done], base_url)["outcome"]), f"{write.name}{batch}")
    except StorageError:
        invocation.beside_error = {"rows": [document(row, base_url) for row in rows[:done]], "base_url": base_url}
        raise
    except CancelledError:
        pass  # The ledger holds the finished part, and the rest can be resumed.
    return rows


def unsent_document(kind: ActionKind) -> dict[str, object]:
    """The document of a write that was refused before an action existed: the same fields, all null."""
    unsent: dict[str, object] = {"action_id": None, "kind": kind, "state": "not_sent", "base_url": None}
    return unsent | {WRITE_KINDS[kind].made: None, "warnings": []}


def write_document(action: Action) -> dict[str, object]:
    """The document of a write: its action and its result (null until known)."""
    made = as_received(action.response_json) or None
    if made is None and action.resolution == "created" and action.result_id is not None:
        made = {WRITE_KINDS[action.kind].fields[0]: action.result_id}  # A user named this run, so only its id is known.
    if made is not None and (action.kind, action.state) == ("run.cancel", "confirmed"):
        made["outcome"] = CANCELLED
    document = facts(action, "action_id kind state base_url") | {WRITE_KINDS[action.kind].made: made}
    if action.error is None:
        return document
    return document | {"error": error_document(action)}


def error_document(action: Action) -> dict[str, object] | None:
    """The action's error as JSON; None while it is open or once it is confirmed."""
    if action.error is None:
        return None
    return facts(action.error, "kind message http_status error_code")


def action_document(action: Action) -> dict[str, object]:
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
    request = request_sent(action)
    if named := action.subject or (request and request.segment and getattr(request, request.segment)):
        return str(named)
    body = as_received(action.body_json)
    return str(body.get("project_path") or body.get("project_id") or body.get("instructions") or action.path)


def state_text(action: Action) -> str:
    by_hand = {"sent_again": " (sent again)", None: ""}.get(action.resolution, " (by hand)")
    return action.state.replace("_", " ") + by_hand
