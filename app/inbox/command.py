"""`runwarden inbox`: list open items, and mark them as done."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import click

from app.actions.command_many import retry_options, retry_runs
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error
from app.cli.options import CommandGroup, async_command, reading
from app.cli.output import Column, facts
from app.engine.engine import Engine
from app.engine.times import exact_ago, parse_duration, rfc3339
from app.inbox.inbox import Inbox
from storage.errors import StorageError
from storage.records.inbox import NO_TIME, RETRIED, InboxItem

TONES: Final = {"critical": "bad", "decide": "warn"}
ALL: Final = "all"
KEYS: Final = click.argument("keys", nargs=-1, required=True, metavar="KEY...")


class _ListingGroup(CommandGroup):
    """Lists the items if no subcommand is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Completion needs all command names.
        is_named = ctx.resilient_parsing or any(arg in self.commands or arg in ctx.help_option_names for arg in args)
        return super().parse_args(ctx, args if is_named else ["list", *args])


inbox = _ListingGroup("inbox", no_args_is_help=False, help="List open items, and mark them as done.")


@inbox.command("list")
@click.option("--all", "with_done", is_flag=True, help="Include items that are done, snoozed or muted.")
@async_command
async def list_items(invocation: Invocation, /, *, with_done: bool) -> int:
    """List open items, the most severe first. Changes nothing, and does not contact the service."""
    async with invocation.engine(needs_token=False) as engine:
        items = await Inbox.of(engine).items(with_done=with_done)
        now = engine.clock()
        state = engine.state
        polled = {link.subject: link.last_ok_at for link in await engine.cache.links()}
        coverage = await engine.cache.coverage()
    problem = ""
    if isinstance(state, StorageError) and not with_done:
        problem = f"Marks unknown: items that are done are listed too. {state}"
    entries = [
        facts(item, "key kind title severity count choices")
        | {"at": None if item.at == NO_TIME else rfc3339(item.at), "back": item.back or None, "fix": item.fix or None}
        | {"runs": list(item.run_ids), "by": item.subject if item.kind == "approval" else None}
        for item in items
    ]
    columns: tuple[Column[InboxItem], ...] = (
        Column("severity", lambda item: item.severity, "severity", tone=lambda item: TONES.get(item.severity, "")),
        Column("kind", lambda item: item.kind, "kind", tone=lambda item: TONES.get(item.severity, "")),
        Column("what", lambda item: item.title, "title", flexible=True),
        Column("when", lambda item: "" if item.at == NO_TIME else exact_ago(item.at, now), "at"),
        Column("to do", lambda item: item.fix, "fix", flexible=True),
        Column("key", lambda item: item.key, "key"),
    )
    more = {
        "as_of": rfc3339(coverage.as_of or polled.get("runs")),
        "complete_since": rfc3339(coverage.complete_since) if coverage.as_of else None,
        "health_as_of": rfc3339(polled.get("health")),
        **({"marks": "unknown"} if problem else {}),
    }
    invocation.output.note(problem)
    invocation.output.listing("items", entries, columns, items, more=more, empty="The inbox is empty.")
    return Exit.DONE


@inbox.command("done")
@KEYS
@async_command
async def done(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Mark items as done; `all`: all items listed now. Later events bring them back."""
    return await _mark(invocation, keys, Inbox.mark_done)


@inbox.command("retry")
@KEYS
@retry_options
@async_command
async def retry(invocation: Invocation, /, *, keys: tuple[str, ...], **options: Any) -> int:
    """Retry the failed runs of items, as `runs retry` does: of an outage, all runs that it broke."""

    async def read_ids(engine: Engine) -> list[str]:
        items = _find_items(await Inbox.of(engine).items(), keys)
        if run_ids := [run_id for item in items if item.kind in RETRIED for run_id in item.run_ids]:
            return run_ids
        raise command_error("not_found", "Nothing was sent: these items have no failed runs.")

    return await retry_runs(invocation, read_ids, **options)


@inbox.command("snooze")
@KEYS
@click.option(
    "--for",
    "length",
    callback=reading(parse_duration),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="For how long, as in 2h or 1d.",
)
@async_command
async def snooze(invocation: Invocation, /, *, keys: tuple[str, ...], length: timedelta) -> int:
    """Snooze items for a while; new events bring them back sooner."""
    return await _mark(invocation, keys, lambda box, items: box.snooze(items, box.engine.clock() + length))


@inbox.command("mute")
@KEYS
@async_command
async def mute(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Hide items permanently, even if more events follow."""
    return await _mark(invocation, keys, Inbox.mute)


@inbox.command("undo")
@async_command
async def undo(invocation: Invocation, /) -> int:
    """Undo the last `done`, `snooze` or `mute`; run it again to undo the one before."""
    async with invocation.engine(needs_token=False) as engine:
        keys = await Inbox.of(engine).undo()
    invocation.output.record({"keys": list(keys)}, [("as before", key) for key in keys] or [("unchanged", "nothing")])
    return Exit.DONE


async def _mark(
    invocation: Invocation, keys: Sequence[str], mark: Callable[[Inbox, list[InboxItem]], Awaitable[None]]
) -> int:
    async with invocation.engine(needs_token=False) as engine:
        box = Inbox.of(engine)
        items = _find_items(await box.items(), keys)
        await mark(box, items)
    marked = [item.key for item in items]
    invocation.output.record({"keys": marked}, [("marked", key) for key in marked] or [("unchanged", "nothing")])
    return Exit.DONE


def _find_items(items: Sequence[InboxItem], keys: Sequence[str]) -> list[InboxItem]:
    """The items of these keys, each once; all, if that is the only key."""
    by_key = {item.key: item for item in items}
    chosen = list(by_key) if list(keys) == [ALL] else list(dict.fromkeys(keys))
    if missing := [key for key in chosen if key not in by_key]:
        raise command_error("not_found", f"There is no item {missing[0]!r}. See: runwarden inbox list")
    return [by_key[key] for key in chosen]
