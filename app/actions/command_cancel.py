"""`runwarden runs cancel`: one run, or the active runs that match a filter."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec.structs import replace

from app.actions.command_writes import (
    YES_OPTION,
    RunWrite,
    WriteCommand,
    WriteOptions,
    confirm_batch,
    perform,
    print_batch,
    rehearsed,
    send_batch,
    write_options,
)
from app.actions.follow_ups import waiting_words
from app.api.requests import CancelRun
from app.cli.context import Invocation
from app.cli.exits import failed
from app.cli.options import COUNT, async_command, completed
from app.cli.output import Column
from app.runs.command_list import FILTERS, run_filter
from app.runs.command_lookup import RunLookup
from app.runs.command_rows import badge

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command("cancel", cls=WriteCommand, kind="run.cancel")
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID...]", shell_complete=completed("runs"))
@FILTERS
@click.option("--limit", type=COUNT, help="Refuse if more runs match the filter. Default: send_cap, 25.")
@YES_OPTION
@click.option("--keep-continuation", is_flag=True, help="Send the continuation that waits for its end nevertheless.")
@write_options
@async_command
async def cancel(
    invocation: Invocation,
    /,
    *,
    run_ids: tuple[str, ...],
    limit: int | None,
    yes: bool,
    keep_continuation: bool,
    key: str | None,
    dry_run: bool,
    **filters: Any,
) -> int:
    """Cancel runs: their agents are stopped, their turns push nothing, and the runs are failed. Twice does no harm.

    Name the runs, or give a filter: of the runs that match, those are cancelled that have not ended; --active alone
    means all of these. A filter, or several runs, are cancelled after one question, one run after the other, each under
    the key KEY-RUN_ID if there is a key. --dry-run lists them.
    """
    has_filter = any(filters.values())
    if has_filter == bool(run_ids):
        raise failed("usage", "Name the runs to cancel, or else give a filter such as --status queued or --active.")
    condition = replace(run_filter(**filters), active=True)
    if not (is_one := len(run_ids) == 1):
        invocation.beside_error = {}  # Its document is that of a batch.
    async with invocation.writer(dry_run=dry_run) as engine:
        if has_filter:
            await engine.runs.refresh()
            found = await engine.cache.runs(condition, None)
            if len(found) > (most := limit or engine.settings.console.send_cap):
                cure = f"Narrow the filter, or give --limit {len(found)}."
                raise failed("usage", f"Nothing was sent: {len(found):,} runs match, more than {most}. {cure}")
        else:
            lookup = RunLookup(engine)
            found = tuple([await lookup.to_change(each, invocation.output.note) for each in run_ids])
        runs = {run.run_id: run for run in found}
        waiting = await engine.follow_ups.waiting(runs)
        for each in () if keep_continuation else waiting:
            words = f"its waiting continuation is dropped, too: “{waiting_words(each)}”"
            invocation.warn(f"If the run is cancelled, {words}. --keep-continuation sends it.")
        base_url, rows = engine.client.base_url, list[RunWrite]()
        for run in runs.values():
            request, own_key = CancelRun(run.run_id), f"{key}-{run.run_id}" if key else ""
            rows.append(RunWrite(run.run_id, await rehearsed(engine, request, own_key), request, own_key, run))
            if not (yes or dry_run or is_one):
                invocation.output.note(f"{run.run_id}  {badge(run.status)}  {run.repository.label}")
        if not (dry_run or is_one):
            confirm_batch(invocation, rows, "Cancel", yes=yes)
        for each in waiting if keep_continuation and not dry_run else ():
            await engine.follow_ups.keep(each)
        document = partial(RunWrite.document, base_url=base_url)
        report: Callable[[], int] = partial(print_batch, invocation, rows, COLUMNS, document, base_url, dry_run=dry_run)
        if is_one:
            report = await perform(invocation, engine, CancelRun(*runs), WriteOptions(key, dry_run))
        elif not dry_run:
            rows[:] = await send_batch(invocation, engine, rows, document, "sent")
            details = await engine.cache.details([*runs])
            rows[:] = [replace(each, run=details[each.name].run) if each.name in details else each for each in rows]
    if not rows:
        invocation.output.note("No active run matches.")
    return report()


COLUMNS: Final[tuple[Column[RunWrite], ...]] = (
    Column("outcome", lambda r: r.result.outcome, "outcome"),
    Column("run", lambda r: r.name, "run_id", flexible=True),
    Column("status", lambda r: r.run.status if r.run else "", "status"),
    Column("repository", lambda r: r.run.repository.label if r.run else "", "repository", flexible=True),
    Column("reason", lambda r: r.result.reason, "reason", flexible=True),
    Column("action", lambda r: r.result.action.action_id if r.result.action else "", "action_id"),
)
