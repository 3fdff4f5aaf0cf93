"""`runwarden runs view`, `open` and `cancel`: a run's turns, its pages in the browser, and its end."""

from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from app.api.errors import ApiError
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed
from app.cli.options import FactCommand, async_command
from app.cli.output import Format, Output
from app.cli.runs.lookup import RunLookup
from app.cli.writes import WriteCommand, WriteOptions, perform, write_options
from app.run_document import as_received, run_address
from app.text import safe_block, safe_text
from app.times import rfc3339, span
from storage.records.results import Turn, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.results.source import Results
    from storage.records import RunDetail

T = TypeVar("T")

TURN_OPTION: Final = click.option("--turn", type=click.IntRange(1), metavar="N", help="Only what turn N did.")


@asynccontextmanager
async def opened(invocation: Invocation, run_id: str) -> "AsyncIterator[tuple[Results, RunDetail]]":
    """A run from the service, or else from the cache, and its results."""
    from app.results.source import Results

    async with invocation.engine(needs_token=False) as engine:
        lookup = RunLookup(engine)
        try:
            run = await lookup.current(run_id)
        except ApiError as error:
            try:
                run = await lookup.cached(run_id)
            except CommandFailedError:
                raise error from None
            invocation.output.note(f"{error.message} The run is as it was last seen.")
        detail = await engine.cache.detail(run.run_id)
        if detail is None:
            raise failed("not_found", f"The run {run_id} is not held here.", run_id=run_id)
        yield Results(engine.settings, engine.extension), detail


def require(answer: T | Unavailable) -> T:
    """The answer itself.

    Raises:
        CommandFailedError: It is not available; the message says why.
    """
    if isinstance(answer, Unavailable):
        raise failed("not_found", answer.reason)
    return answer


@click.command("view", cls=FactCommand)
@click.argument("run_id")
@click.option("--turn", type=click.IntRange(1), metavar="N", help="Turn N alone.")
@async_command
async def view(invocation: Invocation, *, run_id: str, turn: int | None) -> int:
    """Show what a run did, turn by turn: its instructions, how it ended and why, its commit and summary.

    From the service's results or from git. The run's own fields and its timeline are `runs show`.
    """
    async with opened(invocation, run_id) as (results, detail):
        run_turns = require(await results.turns(detail))
    turns = [each for each in run_turns.turns if turn in {None, each.number}]
    if turn is not None and not turns:
        raise failed("not_found", f"The run {detail.run.run_id} has no turn {turn}; it has {len(run_turns.turns)}.")
    output = invocation.output
    document = {
        "run": as_received(detail.run.raw_json),
        "turns": [_turn_document(each) for each in turns],
        "source": run_turns.source,
        "note": run_turns.note,
        "postings": [asdict(each) for each in run_turns.postings],
    }
    run = detail.run
    pairs = [("run_id", run.run_id), ("status", run.status), ("repository", run.repository.label)]
    output.record(document, [*pairs, ("branch_name", run.branch_name), ("turns", str(len(run_turns.turns)))])
    if output.format is Format.TABLE:
        for each in turns:
            _tell_turn(output, each)
        for posting in run_turns.notable_postings:
            output.text(safe_text(str(posting)))
        output.note(run_turns.note)
    return Exit.DONE


def _turn_document(turn: Turn) -> dict[str, object]:
    names = ("number", "instructions", "caller", "state", "outcome", "reason", "commit", "summary")
    times = {"started_at": rfc3339(turn.started_at), "ended_at": rfc3339(turn.ended_at)}
    counts = {name: getattr(turn, name) for name in ("files", "additions", "deletions")}
    usage = {"usage": None if turn.usage is None else asdict(turn.usage)}
    return {name: getattr(turn, name) for name in names} | times | counts | usage


def _tell_turn(output: Output, turn: Turn) -> None:
    files = "1 file" if turn.files == 1 else f"{turn.files} files"
    changed = "" if turn.files is None else f"{files} +{turn.additions or 0} -{turn.deletions or 0}"
    caller = f"by {turn.caller}" if turn.caller else ""
    head = (
        f"turn {turn.number}",
        turn.state,
        rfc3339(turn.started_at) or "",
        _took(turn),
        caller,
        changed,
        str(turn.usage or ""),
    )
    output.text("")
    output.text("  ".join(safe_text(part) for part in head if part))
    for line in safe_block(turn.instructions or ""):
        output.text(f"  > {line}")
    for name, text in (("reason", turn.reason), ("summary", turn.summary), ("commit", turn.commit)):
        for line in safe_block(text or "") if text else ():
            output.text(f"  {name}: {line}")


def _took(turn: Turn) -> str:
    if turn.started_at is None or turn.ended_at is None:
        return ""
    return span((turn.ended_at - turn.started_at).total_seconds(), pads_hours=False)


@click.command("open", cls=FactCommand)
@click.argument("run_id")
@click.option("--pull-request", "pull", is_flag=True, help="Open the pull or merge request that the service opened.")
@async_command
async def open_(invocation: Invocation, *, run_id: str, pull: bool) -> int:
    """Open a run in the browser, by the address that `console.run_url` gives; print that address."""
    address = await (_pull_request if pull else _address)(invocation, run_id)
    import webbrowser  # It looks for every installed browser: not before one is needed.

    is_open = webbrowser.open(address)
    invocation.output.record({"url": address, "opened": is_open}, [("url", address)])
    if not is_open:
        invocation.output.note("There is no browser here.")
    return Exit.DONE


async def _address(invocation: Invocation, run_id: str) -> str:
    template = invocation.settings().console.run_url
    if not template:
        raise failed(
            "config", 'Nothing says where runs are shown. Set console.run_url, as in "https://example.com/{run_id}".'
        )
    async with invocation.engine(needs_token=False) as engine:
        return run_address(template, await RunLookup(engine).named(run_id))


async def _pull_request(invocation: Invocation, run_id: str) -> str:
    async with opened(invocation, run_id) as (results, detail):
        turns = require(await results.turns(detail))
    if turns.pull_request is None:
        raise failed("not_found", f"The service opened no pull request for the run {detail.run.run_id}.")
    return turns.pull_request


@click.command("cancel", cls=WriteCommand, kind="run.cancel")
@click.argument("run_id")
@write_options
@click.pass_obj
def cancel(invocation: Invocation, /, *, run_id: str, **options: Any) -> int:
    """End RUN_ID: its agent is stopped, nothing of its turn is pushed, and the run is failed. Twice does no harm."""
    return invocation.run(lambda: _cancel(invocation, run_id, WriteOptions.of(**options)))


async def _cancel(invocation: Invocation, run_id: str, options: WriteOptions) -> int:
    from app.actions.cancelling import look
    from app.api.requests import CancelRun

    async with invocation.writer(dry_run=options.dry_run) as engine:
        run = await RunLookup(engine).to_change(run_id, invocation.output.note)
        report = await perform(invocation, engine, CancelRun(run.run_id), options, look)
    return report()
