"""`runwarden inbox`: what happened and is not dealt with yet."""

from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.table import Column
from app.times import exact_ago, parse_duration, rfc3339
from storage.records.inbox import InboxItem, Mark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.automations.inbox import Inbox

TONES: Final = {"failed": "bad", "unknown": "warn", "approval": "warn", "host": "bad", "paused": "warn"}
ALL: Final = "all"


@click.group(cls=CommandGroup)
def inbox() -> None:
    """List what happened and is not dealt with, and say that it is."""


@inbox.command("list", cls=FactCommand)
@click.option("--all", "with_done", is_flag=True, help="Also what is done, snoozed or muted.")
@async_command
async def list_items(invocation: Invocation, /, *, with_done: bool) -> int:
    """List what is not dealt with, newest first; looking at it changes nothing. Does not contact the service."""
    async with _opened(invocation) as box:
        items = await box.items(with_done=with_done)
        now = box.engine.clock()
    columns: tuple[Column[InboxItem], ...] = (
        Column("kind", lambda item: item.kind, "kind", tone=lambda item: TONES.get(item.kind, "")),
        Column("what", lambda item: item.title, "title", flexible=True),
        Column("when", lambda item: exact_ago(item.at, now), "at", lambda item: rfc3339(item.at)),
        Column("to do", lambda item: item.cure, "cure", flexible=True),
        Column("key", lambda item: item.key, "key"),
    )
    entries = [_document(item) for item in items]
    invocation.output.listing("items", entries, items, columns, empty="Nothing waits for you.")
    return Exit.DONE


@inbox.command("done", cls=FactCommand)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@async_command
async def done(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Say that items are dealt with (`all`: those listed now); what happens later brings them back."""
    return await _mark(invocation, keys, lambda item, _: Mark(done_until=item.at))


@inbox.command("snooze", cls=FactCommand)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--for", "length", default="1h", show_default=True, metavar="TIME", help="For how long, as in 2h or 1d.")
@async_command
async def snooze(invocation: Invocation, /, *, keys: tuple[str, ...], length: str) -> int:
    """Put items off for a while."""
    try:
        until: timedelta = parse_duration(length)
    except ValueError as error:
        raise failed("usage", str(error), field="for") from error
    return await _mark(invocation, keys, lambda _, now: Mark(snoozed_until=now + until))


@inbox.command("mute", cls=FactCommand)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@async_command
async def mute(invocation: Invocation, /, *, keys: tuple[str, ...]) -> int:
    """Take items out for good, whatever happens later."""
    return await _mark(invocation, keys, lambda *_: Mark(is_muted=True))


@inbox.command("undo", cls=FactCommand)
@async_command
async def undo(invocation: Invocation, /) -> int:
    """Take back what was said of items last."""
    async with _opened(invocation) as box:
        keys = await box.state.undo()
    invocation.output.record({"keys": list(keys)}, [("as before", key) for key in keys] or [("unchanged", "nothing")])
    return Exit.DONE


@asynccontextmanager
async def _opened(invocation: Invocation) -> "AsyncIterator[Inbox]":
    from app.automations.bot import rules_of
    from app.automations.inbox import Inbox
    from app.config import STATE_FILE, data_folder
    from storage.state import State

    async with invocation.engine(needs_token=False) as engine:
        folder = data_folder(engine.settings, engine.profile)
        async with await State.open(folder / STATE_FILE, clock=engine.clock) as state:
            yield Inbox(engine, state, rules_of(engine.settings.automations, engine.profile.name))


async def _mark(invocation: Invocation, keys: Sequence[str], made: Callable[[InboxItem, datetime], Mark]) -> int:
    async with _opened(invocation) as box:
        items, now = {item.key: item for item in await box.items()}, box.engine.clock()
        chosen = list(items) if list(keys) == [ALL] else list(dict.fromkeys(keys))
        if missing := [key for key in chosen if key not in items]:
            raise failed("not_found", f"There is no item {missing[0]!r}. See: runwarden inbox list")
        await box.state.mark({key: made(items[key], now) for key in chosen}, now)
    invocation.output.record({"keys": chosen}, [("marked", key) for key in chosen] or [("unchanged", "nothing")])
    return Exit.DONE


def _document(item: InboxItem) -> dict[str, object]:
    return {
        "key": item.key,
        "kind": item.kind,
        "title": item.title,
        "at": rfc3339(item.at),
        "count": item.count,
        "cure": item.cure or None,
    }
