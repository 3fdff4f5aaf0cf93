"""`runwarden runs log`: what a turn printed, to its present end or until the turn ends."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from app.api.errors import ApiError
from app.cli.context import Format, Invocation
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import RUN_ID, FactCommand, async_command
from app.cli.output import Output
from app.cli.runs.lookup import RunLookup
from app.cli.runs.results import require
from app.text import safe_log_line
from storage.records.results import LogChunk, Unavailable

if TYPE_CHECKING:
    from app.engine import Engine

TAIL: Final = 64 << 10
"""Bytes of a log that are shown unless all are asked for."""
WAIT_S: Final = 20
"""How long the service may hold an answer back until the log grows."""
REST_S: Final = 1.0
"""Pause after an answer without anything new."""
PAUSE_S: Final = 3.0
"""Pause after a fault of the connection."""
LONGEST_LINE: Final = 1 << 16
"""Bytes of a line without an end that are held before they are printed."""
PASSING: Final = frozenset({"unreachable", "timed_out", "server_failed", "rate_limited"})
"""Kinds of failures that following waits out."""


@click.command("log", cls=FactCommand)
@RUN_ID
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
        run_turns = require(await engine.extension.turns(run.run_id))
        number = turn or (run_turns.turns[-1].number if run_turns.turns else 1)
        reader = LogReader(engine, invocation.output, run.run_id, number, is_raw=options["raw"])
        is_table = invocation.format is Format.TABLE
        offset = 0 if options["everything"] else -TAIL
        chunk = await reader.print(offset, is_shown=is_table)
        if options["follow"]:
            await reader.follow(chunk)
            ended = require(await engine.extension.turns(run.run_id))
            outcome = next((each.outcome for each in ended.turns if each.number == number), None)
            invocation.output.note(f"turn {number}: {outcome or 'not ended'}")
            return Exit.DONE if outcome == "completed" else Exit.FAILED
    if not is_table:
        facts = {"run_id": run.run_id, "turn": number, "size": chunk.size, "ended": chunk.ended}
        invocation.output.record({**facts, "text": reader.text}, [("log", reader.text)])
    return Exit.DONE


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
        chunk = require(await self._read(offset, 0))
        if offset < 0 < chunk.offset and not self.is_raw:
            self.output.note(f"{chunk.offset:,} earlier bytes are left out: --all prints them.")
            chunk = replace(chunk, data=chunk.data.partition(b"\n")[2] or chunk.data)
        self._print(chunk.data, is_shown=is_shown)
        while chunk.next_offset < chunk.size and chunk.data:
            chunk = require(await self._read(chunk.next_offset, 0))
            self._print(chunk.data, is_shown=is_shown)
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
                chunk = require(await self._read(asked, WAIT_S))
            except CommandFailedError as error:
                if error.failure.kind not in PASSING:
                    raise
                self.output.note(f"Still following; {error.failure.message}")
                await asyncio.sleep(PAUSE_S)
                continue
            if chunk.offset < asked:
                self.output.note("The log was replaced by a shorter one.")
            self._print(chunk.data, is_shown=True)
            self.output.flush()
            if not chunk.data and not chunk.ended:
                await asyncio.sleep(REST_S)  # The service may answer at once, although it was asked to wait.
        if self._rest:
            self._line(self._rest, is_shown=True)

    async def _read(self, offset: int, wait_s: int) -> LogChunk | Unavailable:
        try:
            return await self.engine.extension.log(self.run_id, self.turn, offset=offset, wait_s=wait_s)
        except ApiError as error:
            raise CommandFailedError(of_api_error(error)) from error

    def _print(self, data: bytes, *, is_shown: bool) -> None:
        if self.is_raw:
            self.output.write(data)
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
