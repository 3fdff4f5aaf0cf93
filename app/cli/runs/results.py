"""`runwarden runs view`, `log` and `cancel`: a run's turns, their output, and ending them."""

import asyncio
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import click

from app.api.errors import ApiError
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, failed, of_api_error
from app.cli.options import FactCommand, async_command
from app.cli.output import Format, Output
from app.cli.runs.changes import had, opened
from app.cli.runs.wait import RunLookup
from app.cli.writes.command import WriteCommand, WriteOptions, perform, write_options
from app.run_document import as_received
from app.start.streams import printing
from app.text import safe_block, safe_log_line, safe_text
from app.times import rfc3339, span
from storage.records.results import LogChunk, RunTurns, Turn, Unavailable

if TYPE_CHECKING:
    from app.engine import Engine

TAIL: Final = 64 << 10
"""Bytes of a log that are shown unless all are asked for."""
WAIT_S: Final = 20
REST_S: Final = 1.0
"""After an answer without anything new."""
PAUSE_S: Final = 3.0
"""After a fault of the connection."""
LONGEST_LINE: Final = 1 << 16


@click.command("view", cls=FactCommand, short_help="Show what a run did, turn by turn.")
@click.argument("run_id")
@click.option("--turn", type=click.IntRange(1), metavar="N", help="Turn N alone.")
@async_command
async def view(invocation: Invocation, *, run_id: str, turn: int | None) -> int:
    """Show what a run did, turn by turn: its instructions, how it ended and why, its commit and summary.

    From the service's results or from git. The run's own fields and its timeline are `runs show`.
    """
    async with opened(invocation, run_id) as (results, detail):
        told = had(await results.turns(detail))
    turns = [each for each in told.turns if turn in {None, each.number}]
    if turn is not None and not turns:
        raise failed("not_found", f"The run {detail.run.run_id} has no turn {turn}; it has {len(told.turns)}.")
    output = invocation.output
    document = {
        "run": as_received(detail.run.raw_json),
        "turns": [_turn_document(each) for each in turns],
        "source": told.source,
        "note": told.note,
        "postings": [asdict(each) for each in told.postings],
    }
    run = detail.run
    pairs = [("run_id", run.run_id), ("status", run.status), ("repository", run.repository.label)]
    output.record(document, [*pairs, ("branch_name", run.branch_name), ("turns", str(len(told.turns)))])
    if output.format is Format.TABLE:
        for each in turns:
            _tell_turn(output, each)
        for posting in told.told:
            output.text(safe_text(str(posting)))
        output.note(told.note)
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


@click.command("log", cls=FactCommand)
@click.argument("run_id")
@click.option("--turn", type=click.IntRange(1), metavar="N", help="The log of turn N. Default: the last one.")
@click.option("-f", "--follow", is_flag=True, help="Print what is added until the turn ends; exit 1 if it failed.")
@click.option("--all", "everything", is_flag=True, help="From the beginning instead of the last 64 KiB.")
@click.option("--raw", is_flag=True, help="The bytes as they are, for a file or another program.")
@async_command
async def log(invocation: Invocation, *, run_id: str, turn: int | None, **options: bool) -> int:
    """Print what a turn's agent printed, and what the service did for it.

    The end of it, or all of it. On a terminal its colours are shown and every other control is visible; into a pipe
    it is plain lines, with --raw the bytes themselves.
    """
    if invocation.format is not Format.TABLE and (options["follow"] or options["raw"]):
        raise click.UsageError("--follow and --raw print a log as it comes: leave out --json and --output")
    async with invocation.engine(needs_token=True) as engine:
        run = await RunLookup(engine).named(run_id)
        told = had(await engine.extension.turns(run.run_id))
        number = turn or (told.turns[-1].number if told.turns else 1)
        reader = LogReader(engine, invocation.output, run.run_id, number, is_raw=options["raw"])
        is_table = invocation.format is Format.TABLE
        offset = 0 if options["everything"] else -TAIL
        chunk = await reader.print(offset, is_shown=is_table)
        if options["follow"]:
            await reader.follow(chunk)
            ended = had(await engine.extension.turns(run.run_id))
            outcome = _outcome(ended, number)
            invocation.output.note(f"turn {number}: {outcome or 'not ended'}")
            return Exit.DONE if outcome == "completed" else Exit.FAILED
    if not is_table:
        facts = {"run_id": run.run_id, "turn": number, "size": chunk.size, "ended": chunk.ended}
        invocation.output.record({**facts, "text": reader.text}, [("log", reader.text)])
    return Exit.DONE


def _outcome(told: RunTurns, number: int) -> str | None:
    return next((turn.outcome for turn in told.turns if turn.number == number), None)


@dataclass(slots=True)
class LogReader:
    """Reads one turn's log, and prints it line by line."""

    engine: "Engine"
    output: Output
    run_id: str
    turn: int
    is_raw: bool
    _rest: bytes = b""
    """A line that has no end yet."""
    _kept: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The lines that were read and not printed."""
        return "\n".join(self._kept)

    async def print(self, offset: int, *, is_shown: bool) -> LogChunk:
        """Print from an offset to the present end; return the last piece."""
        chunk = had(await self._read(offset, 0))
        if offset < 0 < chunk.offset and not self.is_raw:
            self.output.note(f"{chunk.offset:,} earlier bytes are left out: --all prints them.")
            chunk = replace(chunk, data=chunk.data.partition(b"\n")[2] or chunk.data)
        self._take(chunk.data, is_shown=is_shown)
        while chunk.next_offset < chunk.size and chunk.data:
            chunk = had(await self._read(chunk.next_offset, 0))
            self._take(chunk.data, is_shown=is_shown)
        if self._rest and chunk.ended:
            self._line(self._rest, is_shown=is_shown)
            self._rest = b""
        return chunk

    async def follow(self, last: LogChunk) -> None:
        """Print new output until the turn has ended and all of it is here; failures of the connection are waited out.

        Raises:
            ApiError: Waiting would change nothing.
            CommandFailedError: The log is gone.
        """
        chunk = last
        while not (chunk.ended and chunk.next_offset >= chunk.size):
            asked = chunk.next_offset
            try:
                chunk = had(await self._read(asked, WAIT_S))
            except CommandFailedError as error:
                if error.failure.kind not in _PASSING:
                    raise
                self.output.note(f"Still following; {error.failure.message}")
                await asyncio.sleep(PAUSE_S)
                continue
            if chunk.offset < asked:
                self.output.note("The log was replaced by a shorter one.")
            self._take(chunk.data, is_shown=True)
            self.output.flush()
            if not chunk.data and not chunk.ended:
                await asyncio.sleep(REST_S)  # A service that does not hold its answers back is not asked without end.
        if self._rest:
            self._line(self._rest, is_shown=True)

    async def _read(self, offset: int, wait_s: int) -> LogChunk | Unavailable:
        try:
            return await self.engine.extension.log(self.run_id, self.turn, offset=offset, wait_s=wait_s)
        except ApiError as error:
            raise CommandFailedError(of_api_error(error)) from error

    def _take(self, data: bytes, *, is_shown: bool) -> None:
        if self.is_raw:
            self.output.flush()
            with printing():
                self.output.stdout.buffer.write(data)
                self.output.stdout.buffer.flush()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._line(line, is_shown=is_shown)

    def _line(self, raw: bytes, *, is_shown: bool) -> None:
        line = safe_log_line(raw.decode("utf-8", "replace"), colour=is_shown and self.output.colour)
        if is_shown:
            self.output.print(line)
        else:
            self._kept.append(line)


_PASSING: Final = frozenset({"unreachable", "timed_out", "server_failed", "rate_limited"})


@click.command("cancel", cls=WriteCommand, kind="run.cancel", short_help="Cancel a run that is queued or working.")
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
