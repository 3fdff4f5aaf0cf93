"""`runs cancel` and `runs retry`: many runs after one question, one after the other."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from app.actions.actions import retry_key
from app.actions.asked import Asked, original_request
from app.actions.batch import BatchResult
from app.actions.command_writes import (
    DRY_RUN_OPTION,
    YES_OPTION,
    RunWrite,
    WriteCommand,
    WriteOptions,
    confirm_batch,
    perform,
    print_batch,
    rehearse_write,
    send_batch,
    write_options,
)
from app.actions.follow_ups import waiting_words
from app.api.errors import ApiError
from app.api.requests import CancelRun
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, command_error
from app.cli.options import COUNT, RUN_IDS, FactCommand, as_key, async_command, completion_of, options_of
from app.cli.output import Column
from app.engine.text import plural
from app.health.facts import warning_of
from app.runs.command_list import FILTERS, run_filter
from app.runs.command_rows import RunLookup, badge
from app.runs.command_wait import RunWaiter, wait_failure, wait_options

if TYPE_CHECKING:
    from app.engine.engine import Engine


@click.command("cancel", cls=WriteCommand, kind="run.cancel")
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID...]", shell_complete=completion_of("runs"))
@FILTERS
@click.option("--limit", type=COUNT, help="Refuse if more runs match the filter. Default: send_cap, 25.")
@YES_OPTION
@write_options
@async_command
async def cancel(
    invocation: Invocation,
    /,
    *,
    run_ids: tuple[str, ...],
    limit: int | None,
    yes: bool,
    key: str | None,
    dry_run: bool,
    **filters: Any,
) -> int:
    """Cancel runs: their agents are stopped, their turns push nothing, and the runs fail.

    Cancelling a run again changes nothing. Name the runs, or give a filter: matching runs that have not ended are
    cancelled; --active alone means all of these. With a filter or several runs, one question is asked; then the runs
    are cancelled one after the other, each under the key KEY-RUN_ID if there is a key. --dry-run lists them.
    """
    has_filter = any(filters.values())
    if has_filter == bool(run_ids):
        raise command_error("usage", "Name the runs to cancel, or give a filter such as --status queued or --active.")
    condition = replace(run_filter(**filters), active=True)
    if not (is_one := len(run_ids) == 1):
        invocation.beside_error = {}  # Its document is that of a batch.
    async with invocation.writer(dry_run=dry_run) as engine:
        if has_filter:
            await engine.runs.refresh()
            matches = await engine.cache.runs(condition, None)
            if len(matches) > (most := limit or engine.settings.console.send_cap):
                fix = f"Narrow the filter, or give --limit {len(matches)}."
                raise command_error("usage", f"Nothing was sent: {len(matches):,} runs match, more than {most}. {fix}")
        else:
            lookup = RunLookup(engine)
            matches = tuple([await lookup.to_change(run_id, invocation.output.note) for run_id in run_ids])
        runs = {run.run_id: run for run in matches}
        for decision in await engine.follow_ups.list_waiting(runs):
            words = waiting_words(decision)
            invocation.warn(f"If the run is cancelled, its waiting continuation is dropped, too: “{words}”.")
        report: Callable[[], int] | None = None
        base_url = engine.client.base_url
        rows = list[RunWrite]()
        if is_one:
            report = await perform(invocation, engine, CancelRun(*runs), WriteOptions(key, dry_run))
        else:
            for run in runs.values():
                request = CancelRun(run.run_id)
                own_key = f"{key}-{run.run_id}" if key else ""
                rows.append(RunWrite(run.run_id, await rehearse_write(engine, request, own_key), request, own_key, run))
                if not (yes or dry_run):
                    invocation.output.note(f"{run.run_id}  {badge(run.status)}  {run.repository.label}")
            if not dry_run:
                confirm_batch(invocation, rows, "Cancel", yes=yes)
                rows = await send_batch(invocation, engine, rows, RunWrite.document, "sent")
                details = await engine.cache.details([*runs])
                rows = [replace(row, run=details[row.name].run) if row.name in details else row for row in rows]
    if report is not None:
        return report()
    if not rows:
        invocation.output.note("No active run matches.")
    return print_batch(invocation, rows, CANCEL_COLUMNS, RunWrite.document, base_url, dry_run=dry_run)


CANCEL_COLUMNS: Final[tuple[Column[RunWrite], ...]] = (
    Column("outcome", lambda r: r.result.outcome, "outcome"),
    Column("run", lambda r: r.name, "run_id", flexible=True),
    Column("status", lambda r: r.run.status if r.run else "", "status"),
    Column("repository", lambda r: r.run.repository.label if r.run else "", "repository", flexible=True),
    Column("reason", lambda r: r.result.reason, "reason", flexible=True),
    Column("action", lambda r: r.result.action.action_id if r.result.action else "", "action_id"),
)


class Retry(RunWrite, frozen=True):
    """A retried run, by its id, and its outcome; `run` is the resulting run, once it has ended."""

    asked: Asked | None = None
    """The request that started the last turn, and its author; None if unknown."""

    def document(self, base_url: str) -> dict[str, object]:
        return super().document(base_url) | {"asked_by": (self.asked.caller or None) if self.asked else None}


retry_options: Final = options_of(
    YES_OPTION,
    click.option(
        "--key",
        "--idempotency-key",
        "key",
        callback=as_key,
        metavar="PREFIX",
        help="Send each run once under the key PREFIX-RUN_ID. Default: once for each of its failures.",
    ),
    DRY_RUN_OPTION,
    wait_options,
)


@click.command("retry", cls=FactCommand)
@RUN_IDS
@retry_options
@async_command
async def retry(invocation: Invocation, /, *, run_ids: tuple[str, ...], **options: Any) -> int:
    """Retry failed runs with the same instructions, repository and branch.

    Others' instructions are known if the service has the results extension. After one question the retries are sent one
    after the other, in batches of send_cap. An interrupted command can simply be repeated: each failure is retried
    once.
    """

    async def named(_: "Engine") -> Sequence[str]:
        return run_ids

    return await retry_runs(invocation, named, **options)


async def retry_runs(
    invocation: Invocation, named: Callable[["Engine"], Awaitable[Sequence[str]]], *, yes: bool, **values: Any
) -> int:
    options = WriteOptions(**values)
    failure = None
    async with invocation.writer(dry_run=options.dry_run) as engine:
        planned = [await plan_retry(engine, run_id, options.key) for run_id in await named(engine)]
        results = list({row.name: row for row in planned}.values())
        to_send = [row for row in results if row.result.outcome == "to_send"]
        details = (await engine.cache.details([row.name for row in to_send])).values()
        platforms = {detail.run.repository.platform for detail in details}
        invocation.output.note(warning_of(await engine.cache.health(), platforms, engine.settings.console.health_ok))
        base_url = engine.client.base_url
        cap = engine.settings.console.send_cap
        batches = f", {cap} at a time" if len(to_send) > cap else ""
        if not options.dry_run and confirm_batch(invocation, results, "Retry", batches, yes=yes):
            results = await send_batch(invocation, engine, results, Retry.document, "sent", cap)
        new_runs = {row.name: row.result.result_id for row in results if row.result.is_done and row.result.result_id}
        is_stopped = invocation.stopped_by or any(
            row.result.outcome == "not_tried" or row.result.stops_batch for row in results
        )
        if options.waits and not options.dry_run and new_runs and not is_stopped:
            # Report the sent retries, even if waiting ends early.
            invocation.beside_error = {"rows": [row.document(base_url) for row in results], "base_url": base_url}
            pronoun = "it" if len(new_runs) == 1 else "them"
            invocation.output.note(f"{plural(len(new_runs), 'run')} sent; waiting for the end of {pronoun}.")
            waiter = RunWaiter(engine, invocation.output.note, may_appear=True, is_stale=bool(invocation.warnings))
            ended = await waiter.until_final(list(dict.fromkeys(new_runs.values())), options.timeout)
            runs = {run_id: ended[result_id].run for run_id, result_id in new_runs.items()}
            results = [replace(row, run=runs.get(row.name)) for row in results]
            failure = wait_failure(ended)
    columns, dry_run = RETRY_COLUMNS, options.dry_run
    return print_batch(invocation, results, columns, Retry.document, base_url, failure=failure, dry_run=dry_run)


async def plan_retry(engine: "Engine", text: str, prefix: str | None = None) -> Retry:

    def refusal(run_id: str, reason: str) -> Retry:
        return Retry(run_id, BatchResult("refused", problem=reason))

    try:
        run = await RunLookup(engine).find_current(text)
    except CommandFailedError as error:
        return refusal(text, error.message)
    detail = await engine.cache.detail(run.run_id)
    if detail is None or not detail.is_final:
        return refusal(run.run_id, f"It has not ended: {run.status}.")
    if run.status == "completed":
        return refusal(run.run_id, "It completed.")
    try:
        asked = await original_request(engine.ledger, engine.extension.turns, detail)
    except ApiError as error:
        return refusal(run.run_id, f"The service could not be asked for its instructions: {error.message}")
    if not isinstance(asked, Asked):
        return refusal(run.run_id, asked.reason)
    # Each failure is retried once; a run that works and fails again has a new failure, and so another key.
    key = f"{prefix}-{run.run_id}" if prefix else retry_key(run)
    return Retry(run.run_id, await rehearse_write(engine, asked.request, key), asked.request, key, asked=asked)


RETRY_COLUMNS: Final[tuple[Column[Retry], ...]] = (
    Column("outcome", lambda r: r.result.outcome, "outcome"),
    Column("run", lambda r: r.name, "run_id", flexible=True),
    Column("made", lambda r: r.result.result_id, "result_id", flexible=True),
    Column("ended", lambda r: r.run.status if r.run else "", "status"),
    Column("reason", lambda r: r.result.reason, "reason", flexible=True),
    Column("action", lambda r: r.result.action.action_id if r.result.action else "", "action_id"),
    Column("asked by", lambda r: r.asked.caller if r.asked else "", "asked_by"),
)
