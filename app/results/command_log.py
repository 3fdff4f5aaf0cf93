"""`runwarden runs log`: the output of a turn, so far or until the turn finishes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import click
from msgspec.structs import asdict, replace

from app.api.errors import ApiError
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, of_api_error
from app.cli.options import RUN_ID, FactCommand, async_command
from app.cli.output import Document, Output, facts
from app.engine.text import safe_log_line
from app.engine.times import rfc3339
from app.results.command_results import require
from app.results.steps import StepLines
from app.runs.command_lookup import RunLookup
from storage.records.error_kinds import error_kind
from storage.records.results import LogChunk, Turn, Unavailable

if TYPE_CHECKING:
    from app.engine.engine import Engine

LogForm = Literal["bytes", "lines", "steps", "only_steps"]
"""`steps`, if the service knows them; otherwise `lines`."""
TAIL: Final = 64 << 10
"""Bytes of a log that are shown unless all are asked for."""
WAIT_S: Final = 20
"""How long the service may hold an answer back until the log grows."""
REST_S: Final = 1.0
"""Pause after an answer without anything new."""
PAUSE_S: Final = 3.0
"""Pause after a fault of the connection."""
LONGEST_LINE: Final = 1 << 16
"""Bytes of a line without an end that are held before they are printed, unless nothing is cut."""
LONGEST_SHOWN: Final = 4_000
"""Characters shown of a line, unless nothing is cut."""
NO_LIMIT: Final = 1 << 26
END_FACTS: Final = "outcome reason failure_kind summary question commit"
"""Facts of a turn that the last event of `--follow --json` shows."""


@click.command("log", cls=FactCommand)
@RUN_ID
@click.option("--turn", type=click.IntRange(1), metavar="N", help="The log of turn N. Default: the last one.")
@click.option("-f", "--follow", is_flag=True, help="Print new output until the turn ends; exit 1 if it failed.")
@click.option("--all", "everything", is_flag=True, help="Print from the beginning instead of the last 64 KiB.")
@click.option("--raw", is_flag=True, help="Print the log's bytes unchanged, for a file or another program.")
@click.option("--allow-escapes", is_flag=True, help="With --raw, let the log's control characters act on a terminal.")
@async_command
async def log(invocation: Invocation, *, run_id: str, turn: int | None, **options: bool) -> int:
    """Print the log of a turn: the output of its agent, and the service's own lines.

    The end of it, or all of it. Where the service knows the agent's program, this is a conversation: what the agent
    said, ran and edited, with the beginning and the end of long outputs. On a terminal colours are shown and every
    other control is visible; into a pipe it is plain lines, with --raw the log's own bytes. On a terminal --raw prints
    whole lines with visible controls, unless --allow-escapes is given. --all cuts nothing. --follow --json prints one
    event a line: step, text (where the steps are not known), then usage and end.
    """
    is_table = invocation.format is Format.TABLE
    if not is_table and (options["raw"] or (options["follow"] and invocation.format is Format.CSV)):
        raise click.UsageError("--raw prints bytes, and --follow lines or --json: leave out --output")
    if is_events := options["follow"] and not is_table:
        invocation.asked_format = Format.NDJSON
    kept = list[tuple[str, Document]]()

    def emit(name: str, event: Document) -> None:
        if is_events:
            invocation.output.print(invocation.output.json({"event": name, **event}))
        else:
            kept.append((name, event))

    async with invocation.engine(needs_token=True) as engine:
        run = await RunLookup(engine).named(run_id)
        run_turns = require(await engine.extension.turns(run.run_id))
        number = turn or (run_turns.turns[-1].number if run_turns.turns else 1)
        offset = 0 if options["everything"] else -TAIL
        forms: tuple[LogForm, ...] = ("lines", "only_steps")
        if is_table or is_events:
            forms = ("bytes",) if options["raw"] else ("steps",)
        # A terminal obeys control characters: clipboard, title, colours.
        is_shown = options["raw"] and invocation.output.width is not None and not options["allow_escapes"]
        if is_shown:
            forms = ("lines",)
        is_whole = options["everything"] or is_shown or not is_table
        about = engine, invocation.output, run.run_id, number
        readers = [LogReader(*about, form, is_whole, None if is_table else emit) for form in forms]
        try:
            chunk, *more = [await reader.print(offset) for reader in readers]
            if options["follow"]:
                await readers[0].follow(chunk)
        except asyncio.CancelledError:
            if not options["follow"]:
                raise
            # The usual end is no error; the exit code is the signal's.
            return Exit.DONE
        if options["follow"]:
            ended = require(await engine.extension.turns(run.run_id))
            last = next((each for each in ended.turns if each.number == number), Turn(number, ""))
            if is_events and last.usage is not None:
                emit("usage", asdict(last.usage))
            if is_events:
                emit("end", {"run_id": run.run_id, "turn": number} | facts(last, END_FACTS))
            else:
                invocation.output.note(f"turn {number}: {last.outcome or 'not ended'}")
            return Exit.DONE if last.outcome == "completed" else Exit.FAILED
    if not is_table:
        text = "\n".join(str(each["text"]) for name, each in kept if name == "text")
        steps = None if more[0].steps is None else [each for name, each in kept if name == "step"]
        known = {"run_id": run.run_id, "turn": number, "size": chunk.size, "ended": chunk.ended}
        invocation.output.record({**known, "text": text, "steps": steps}, [("log", text)])
    return Exit.DONE


@dataclass(slots=True)
class LogReader:
    """Reads one turn's log, and prints it."""

    engine: "Engine"
    output: Output
    run_id: str
    turn: int
    form: LogForm
    is_whole: bool
    """Whether nothing is cut."""
    emit: Callable[[str, Document], None] | None
    """Takes a `step` or the `text` of a line. None: they are printed for people."""
    _rest: bytes = b""
    """A line that has no end yet."""
    _drawn: StepLines = field(init=False)

    def __post_init__(self) -> None:
        """Draw no step yet."""
        self._drawn = StepLines("--all shows them", whole=self.is_whole)

    async def print(self, offset: int) -> LogChunk:
        """Print from an offset to the present end; return the last piece."""
        chunk = require(await self._read(offset, 0))
        if offset < 0 < chunk.offset and self.form != "bytes":
            if self.form != "only_steps":
                self.output.note(f"{chunk.offset:,} earlier bytes are left out: --all prints them.")
            chunk = replace(chunk, data=chunk.data.partition(b"\n")[2] or chunk.data)
        while True:
            if self.form == "only_steps" and chunk.steps is None:
                return chunk
            self._print(chunk)
            if chunk.next_offset >= chunk.size or chunk.next_offset == chunk.offset:
                break
            chunk = require(await self._read(chunk.next_offset, 0))
        if self._rest and chunk.ended:
            self._line(self._rest)
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
                if not error_kind(error.failure.kind).passes:
                    raise
                self.output.note(f"Still following; {error.failure.message}")
                await asyncio.sleep(PAUSE_S)
                continue
            if chunk.offset < asked:
                self.output.note("The log was replaced by a shorter one.")
            self._print(chunk)
            self.output.flush()
            if chunk.next_offset == chunk.offset and not chunk.ended:
                await asyncio.sleep(REST_S)  # The service may answer at once, although it was asked to wait.
        if self._rest:
            self._line(self._rest)

    async def _read(self, offset: int, wait_s: int) -> LogChunk | Unavailable:
        before = 0 if self.form in {"steps", "only_steps"} else None
        try:
            return await self.engine.extension.log(self.run_id, self.turn, offset=offset, wait_s=wait_s, before=before)
        except ApiError as error:
            raise CommandFailedError(of_api_error(error)) from error

    def _print(self, chunk: LogChunk) -> None:
        if self.form == "bytes":
            self.output.write(chunk.data)
            return
        for step in chunk.steps or ():
            if self.emit:
                self.emit("step", asdict(step) | {"at": rfc3339(step.at)})
                continue
            for drawn in self._drawn.of(step):
                self.output.print(drawn.drawn(colour=self.output.colour))
        *lines, self._rest = (self._rest + chunk.data).split(b"\n")
        if len(self._rest) > (NO_LIMIT if self.is_whole else LONGEST_LINE):
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._line(line)

    def _line(self, raw: bytes) -> None:
        limit = NO_LIMIT if self.is_whole else LONGEST_SHOWN
        colour = self.output.colour and self.emit is None
        line = safe_log_line(raw.decode("utf-8", "replace"), limit=limit, colour=colour)
        if self.emit:
            self.emit("text", {"text": line})
        else:
            self.output.print(line)
