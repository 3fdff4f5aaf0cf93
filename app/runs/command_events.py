"""`runwarden runs events`: changes of status, as this machine sees them."""

import asyncio
import time
from contextlib import suppress
from typing import Final

import click

from app.api.errors import ApiError
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import FactCommand, async_command
from app.cli.output import Column, Document, exporting, facts
from app.engine.events import Event, LinkChanged
from storage.records.error_kinds import error_kind

PAGE: Final = 500
HOLD_S: Final = 10.0
"""How long a failure is held back until the service says whether it was a cancellation."""
COLUMNS: Final = tuple(
    Column[Document](name, name=name) for name in ("at", "run_id", "repository", "branch_name", "from", "to", "cursor")
)


@click.command("events", cls=FactCommand)
@click.option("--since", metavar="CURSOR", default="", help="Only what came after this event; now: after the last one.")
@click.option("-f", "--follow", is_flag=True, help="Print further changes as they come, and poll like a console.")
@async_command
async def events(invocation: Invocation, *, since: str, follow: bool) -> int:
    """Print changes of status in the order in which this machine saw them, as NDJSON unless --output says otherwise.

    Each has a cursor to go on from: no change comes twice, and none is lost, whichever console, bot or command polled.
    The newest 100,000 are kept. "from" is null if a run was first seen so; runs that had ended before the service
    first answered are left out.
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
        with exporting(invocation, None, "events", COLUMNS) as rows:
            unread: ApiError | None = None
            try:
                await engine.runs.refresh()
            except ApiError as error:
                if follow and not error_kind(error.kind).passes:
                    raise
                unread = error
            if follow:
                engine.subscribe(listen)
                engine.start_polling()
            held_since: float | None = None
            try:
                while True:
                    changed.clear()
                    holds = follow and (held_since is None or time.monotonic() < held_since + HOLD_S)
                    page = await engine.cache.following.events(since, PAGE, holds_failures=holds)
                    if page is None:
                        why = f"The cursor {since} is too old, or of another profile or a cache that was replaced."
                        cure = "Leave out --since to print what is kept, and compare with: runwarden runs list"
                        raise failed("not_found", f"{why} {cure}", cursor=since)
                    rows.add(
                        facts(one, "cursor run_id repository branch_name")
                        | {"from": one.old, "to": one.new}
                        | facts(one, "at")
                        for one in page.events
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
                # The usual end is no error; the exit code is the signal's.
                output.note(f"Stopped. Go on with: {invocation.command_line} runs events --follow --since {since}")
                return Exit.DONE
            if unread is not None:
                raise unread
            rows.end({"cursor": since})
    return Exit.DONE
