"""A write as a command: its options, its dry run, and how it is sent once and reported with its outcome."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from app.cli.context import Invocation
from app.cli.documents import RESULT_KEYS, unsent_document, write_document
from app.cli.exits import EXIT_BY_KIND, Exit, Failure, failed
from app.cli.options import FactCommand, as_key
from app.cli.output import Column, Document, Format, Output
from app.cli.runs.wait import RunWaiter, wait_failure
from app.run_document import as_received
from storage.records import Action, ActionKind

if TYPE_CHECKING:
    from app.actions import Actions, AlreadyAskedError
    from app.api.requests import WriteRequest
    from app.engine import Engine

SHOWN: Final = {
    "run": ("run_id", "status", "branch_name"),
    "execution": ("execution_id", "agent_name", "repository", "status"),
    "organization": ("organization_id", "organization_name", "organization_slug"),
    "project": ("project_path", "status", "error"),
}
"""The fields of a result that a table shows."""

NOT_RECORDED: Final = "not_recorded"
"""The error's kind where the service answered and the ledger could not record it; its message names the cure."""


async def carry_out(
    engine: "Engine", request: "WriteRequest", *, key: str | None = None, again: bool = False
) -> Action:
    """Submit the request and return the settled action, also when interrupted.

    The same request under the same key is sent once, and reported again afterwards.

    Raises:
        ActionRefusedError: Nothing was sent.
        CommandFailedError: The key was used for another request.
    """
    from app.actions import AlreadyAskedError

    try:
        return await _settled(engine.actions.submit(request, key=key, again=again))
    except AlreadyAskedError as asked:
        return _same(asked, request, key)


def _same(asked: "AlreadyAskedError", request: "WriteRequest", key: str | None) -> Action:
    """The earlier action of this key, if it has the same request."""
    from app.api.requests import as_json

    existing = asked.existing
    if (existing.path, existing.body_json) != (request.path, as_json(request, existing.action_id)):
        raise failed(
            "already_asked",
            f"The key {key!r} was used for another request ({existing.action_id}). Nothing was sent; "
            "choose another key.",
            action_id=existing.action_id,
        ) from asked
    return existing


async def rehearse(engine: "Engine", request: "WriteRequest", *, key: str | None, again: bool) -> Action | None:
    """Check whether `carry_out` would send the request, without sending it; return an earlier action of the key.

    Raises:
        ActionRefusedError, CommandFailedError: It would be refused, as by `carry_out`.
    """
    from app.actions import AlreadyAskedError

    try:
        await engine.actions.rehearse(request, key=key, again=again)
    except AlreadyAskedError as asked:
        return _same(asked, request, key)
    return None


async def resend(engine: "Engine", action_id: str) -> Action:
    """Send an action of unknown outcome again and return its successor.

    Raises:
        ActionRefusedError: Nothing was sent.
        WrongStateError: The action's outcome is not unknown.
    """
    return await _settled(engine.actions.send_again(action_id))


async def _settled(sending: Awaitable[Action]) -> Action:
    from app.actions import SendCancelledError

    try:
        return await sending
    except SendCancelledError as cancelled:
        # The interrupted command reports the action as far as it is settled.
        return cancelled.action


def exit_of(action: Action) -> Exit:
    """The exit code for an action's state."""
    match action.state:
        case "confirmed":
            is_refused = action.kind == "gitlab.onboard" and as_received(action.response_json).get("success") is False
            return Exit.FAILED if is_refused else Exit.DONE
        case "not_created":
            return Exit.USAGE
        case "prepared" | "sending" | "unknown":
            return Exit.UNKNOWN_OUTCOME
        case "rejected" | "not_sent":
            return EXIT_BY_KIND.get(action.error.kind, Exit.USAGE) if action.error else Exit.USAGE


def tell(
    invocation: "Invocation", action: Action, document: dict[str, object] | None = None, *, code: Exit | None = None
) -> Exit:
    """Print a write and its outcome, or the given document, with the warnings so far; return the exit code.

    `code` replaces the action's own exit code.
    """
    output = invocation.output
    document = (document or write_document(action)) | {"warnings": list(invocation.warnings)}
    made = document.get(RESULT_KEYS[action.kind])
    pairs = [("action", action.action_id), ("state", action.state)]
    for name in SHOWN[RESULT_KEYS[action.kind]]:
        value = made.get(name) if isinstance(made, dict) else None
        if value is not None:
            pairs.append((name, str(value)))
    invocation.outcome = exit_of(action) if code is None else code
    output.record(document, pairs)
    if not output.format.is_json:
        output.note(advice(action, invocation.command_line))
    return invocation.outcome


def advice(action: Action, command_line: str) -> str:
    """Advice on the next step; empty: there is none."""
    reason = action.error.message if action.error else ""
    match action.state:
        case "unknown":
            return _way_out(action, reason, command_line)
        case "prepared" | "sending":
            return f"Another process is sending it: {command_line} actions show {action.action_id}"
        case "not_sent":
            return f"Nothing was sent: {reason} You may try again."
        case "rejected":
            return f"The service refused: {reason}"
        case "not_created":
            return "It was resolved as without effect: you may send it again."
        case "confirmed":
            return ""


def _way_out(action: Action, reason: str, command_line: str) -> str:
    if action.error is not None and action.error.kind == NOT_RECORDED:
        return reason
    return (
        f"The outcome is unknown: {reason} It may have taken effect; it is not sent again automatically. "
        f"Find out, then: {command_line} actions resolve {action.action_id} --created ID | --not-created | --send-again"
    )


HEADERS: Final[Mapping[str, str]] = {"Authorization": "Bearer ***", "Content-Type": "application/json"}
"""The headers that a dry run shows, with the token masked."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
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
        """Parse the command's arguments, as click does."""
        ctx.ensure_object(Invocation).beside_error = unsent_document(self.kind)
        return super().parse_args(ctx, args)


def write_options(function: F) -> F:
    """Add the options that every write has."""
    key = click.option(
        "--key",
        "--idempotency-key",
        "key",
        callback=as_key,
        metavar="KEY",
        help="Send the same request under the same KEY only once, however often it is asked for.",
    )
    return key(DRY_RUN_OPTION(function))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write."""

    key: str | None = None
    """The same request under the same key is sent once. None: each one is sent."""
    dry_run: bool = False
    again: bool = False
    """Whether an address that has an organization may get another one."""
    patience: timedelta | None = None
    """How long to wait for the end of the started run; None: do not wait."""

    @classmethod
    def of(
        cls,
        *,
        key: str | None,
        dry_run: bool,
        again: bool = False,
        waits: bool = False,
        timeout: timedelta | None = None,
    ) -> "WriteOptions":
        """From a command's options."""
        return cls(key, dry_run, again, timeout if waits else None)


def submit(invocation: Invocation, request: "WriteRequest", options: WriteOptions) -> int:
    """Send the request through the ledger, or rehearse that; print the outcome and return the exit code."""

    async def work() -> int:
        async with invocation.writer(dry_run=options.dry_run) as engine:
            report = await perform(invocation, engine, request, options)
        return report()

    return invocation.run(work)


async def perform(
    invocation: Invocation,
    engine: "Engine",
    request: "WriteRequest",
    options: WriteOptions,
    look: "Callable[[Actions, Action], Awaitable[Action]] | None" = None,
) -> Callable[[], int]:
    """Send as `submit`, with an engine from `Invocation.writer`; the result prints the outcome.

    `look` finds out the outcome of an unknown action.
    The result is called once the engine is closed: closing may add a warning.
    """
    if options.dry_run:
        existing = await rehearse(engine, request, key=options.key, again=options.again)
        if existing is not None:
            return partial(tell, invocation, existing)
        return partial(tell_request, invocation.output, engine.client.base_url, request)
    action = await carry_out(engine, request, key=options.key, again=options.again)
    if look is not None and action.state == "unknown":
        action = await look(engine.actions, action)
    # From here on all failures are reported beside the write's outcome.
    invocation.beside_error = write_document(action)
    return await finish(invocation, engine, action, options.patience)


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


def request_document(base_url: str, request: "WriteRequest") -> dict[str, object]:
    """The request as it would be sent, but for the token."""
    return {"method": "POST", "url": f"{base_url}{request.path}", "headers": dict(HEADERS), "body": request.body()}


def tell_request(output: Output, base_url: str, request: "WriteRequest") -> Exit:
    """Print the request that a dry run did not send."""
    sent = request_document(base_url, request)
    if output.format is Format.TABLE:
        output.text(f"POST {sent['url']}")
        for name, value in HEADERS.items():
            output.text(f"{name}: {value}")
        output.text("")
        output.print(output.json(sent["body"]))
        return Exit.DONE
    document = {**unsent_document(request.kind), "base_url": base_url, "dry_run": True, "request": sent}
    output.record(document, [("method", "POST"), ("url", str(sent["url"])), ("body", output.json(sent["body"]))])
    return Exit.DONE


def worst(codes: Iterable[Exit]) -> Exit:
    """The exit code of a batch: that of the row to look at first."""
    return max(codes, key=SEVERITY.index, default=Exit.DONE)


def tell_batch(
    invocation: Invocation,
    entries: Sequence[Document],
    items: Sequence[T],
    columns: Sequence[Column[T]],
    base_url: str,
    failure: Failure | None = None,
) -> None:
    """Print the outcomes of a batch's rows, and of waiting for them; each entry has its `outcome`."""
    counts = Counter(entry["outcome"] for entry in entries)
    more = {"outcomes": dict(counts), "base_url": base_url, "warnings": list(invocation.warnings)}
    if failure is not None:
        more["error"] = failure.as_json()
    invocation.output.listing("rows", entries, items, columns, more=more)
    if failure is not None and not invocation.format.is_json:
        invocation.output.note(f"runwarden: {failure.message}")
