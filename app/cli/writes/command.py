"""A write as a command: its options, its dry run, and how it is carried out and reported."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, Failure
from app.cli.option_values import as_key
from app.cli.options import FactCommand
from app.cli.output import Document, Format, Output
from app.cli.output.documents import unsent_document, write_document
from app.cli.output.table import Column
from app.cli.runs.wait import finish
from app.cli.writes import carry_out, rehearse, tell
from storage.records import Action, ActionKind

if TYPE_CHECKING:
    from app.actions import Actions
    from app.api.requests import WriteRequest
    from app.engine import Engine

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
