"""`runwarden runs view`, `show`, `open` and `log`: a run, its turns, its pages, and the output of a turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

import click
from msgspec import to_builtins
from msgspec.structs import asdict, replace

from app.actions.actions import retry_key
from app.actions.command_writes import action_document, state_text
from app.api.errors import ApiError
from app.api.network import Network
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import CommandFailedError, Exit, command_error, of_api_error
from app.cli.options import RUN_ID, FactCommand, async_command
from app.cli.output import Document, Output, facts
from app.engine.text import plural, safe_block, safe_log_line, safe_text
from app.engine.times import exact_ago, rfc3339, span
from app.results.service import REST_S, WAIT_S
from app.results.source import Results
from app.results.steps import NO_LIMIT, StepLines
from app.runs.command_rows import CACHED_HINT, RunDocument, RunLookup, badge, run_documents
from app.runs.document import NO_PAGE, as_received, instructions_of, run_address, spec_fields
from storage.records.action import WRITE_KINDS
from storage.records.error_kinds import error_kind
from storage.records.results import LogChunk, RunTurns, Turn, Unavailable

if TYPE_CHECKING:
    from app.engine.engine import Engine
    from storage.records import Action, Run, RunDetail

T = TypeVar("T")
TURN_FACTS: Final = (
    "number instructions caller state outcome reason failure_kind commit summary question choices offer "
    "started_at ended_at files additions deletions from_turn agent"
)
TURN_OPTION: Final = click.option("--turn", type=click.IntRange(1), metavar="N", help="Turn N only.")
LogForm = Literal["bytes", "lines", "steps", "only_steps"]
"""`steps`, if the service knows them; otherwise `lines`."""
TAIL: Final = 64 << 10
"""Bytes of a log that are shown unless all are asked for."""
PAUSE_S: Final = 3.0
"""Pause after a fault of the connection."""
MAX_LINE: Final = 1 << 16
"""Bytes of a line without an end that are held before they are printed, unless nothing is cut."""
MAX_SHOWN: Final = 4_000
END_FACTS: Final = "outcome reason failure_kind summary question commit"


@asynccontextmanager
async def open_results(invocation: Invocation, run_id: str) -> "AsyncIterator[tuple[Engine, Results, RunDetail]]":
    """A run from the service or the cache, and its results."""
    async with invocation.engine(needs_token=False) as engine:
        lookup = RunLookup(engine)
        try:
            run = await lookup.find_current(run_id)
        except ApiError as error:
            try:
                run = await lookup.find_cached(run_id)
            except CommandFailedError:
                raise error from None
            invocation.output.note(f"{error.message} The run is shown as last seen.")
        detail = await engine.cache.detail(run.run_id)
        if detail is None:
            raise command_error("not_found", f"The run {run_id} is not in the cache.", run_id=run_id)
        yield engine, Results(engine.settings, engine.extension, Network.of(engine.profile)), detail


def require(answer: T | Unavailable) -> T:
    """The answer itself; one that is missing ends the command with its reason."""
    if isinstance(answer, Unavailable):
        raise command_error("not_found", answer.reason)
    return answer


class _About(NamedTuple):
    """A run as the list and this machine know it."""

    view: "RunDocument"
    agent: str | None
    sent: "list[Action]"
    retried: str | None
    """The run that retries this failure; None: it was not retried from here."""

    @classmethod
    async def read(cls, engine: "Engine", run: "Run") -> "_About":
        (view,) = await run_documents(engine, [run])
        agent = (await engine.ledger.agents()).get(run.run_id)
        sent = await engine.ledger.for_run(run.run_id)
        retried = await engine.ledger.results([retry_key(run)] if run.status == "failed" else [])
        return cls(view, agent, list(sent), next(iter(retried.values()), None))

    def pairs(self, *, is_table: bool) -> list[tuple[str, str]]:
        view = self.view
        run = self.view.run
        pairs = [
            ("run_id", run.run_id),
            ("status", badge(run.status) if is_table else run.status),
            ("repository", run.repository.label),
            ("branch_name", run.branch_name),
            ("created_at", rfc3339(run.created_at) or "unreadable"),
            ("updated_at", rfc3339(run.updated_at) or "unreadable"),
            ("took", view.took),
            ("state", view.presence + (", stuck" if view.is_stuck else "")),
        ]
        if view.detail:
            seen_at = view.detail.last_seen_at
            ago = exact_ago(seen_at + view.ahead, view.now)
            pairs.append(("last seen", ago) if is_table else ("last_seen_at", rfc3339(seen_at) or ""))
        more = (("continues", view.continues), ("agent", self.agent), ("retried as", self.retried))
        return pairs + [(name, value) for name, value in more if value]

    def print_to(self, output: Output, turns: "RunTurns | Unavailable | None", turn: int | None = None) -> None:
        """Print its fields, its timeline, and its turns, or the requests sent from here if the turns are unknown."""
        view = self.view
        agent = turns.agent if isinstance(turns, RunTurns) else None
        output.record({}, self._replace(agent=self.agent or agent).pairs(is_table=True))
        moves = view.detail.transitions if view.detail else ()
        if moves:
            output.text("")
            output.text("timeline, as observed")
        for move, end in zip(moves, [move.at for move in moves[1:]] + [view.now], strict=True):
            is_end = view.detail and move.new in view.detail.final_statuses and end is view.now
            lasted = "" if is_end else f" for {span((end - move.at).total_seconds(), pads_hours=False)}"
            output.text(f"  {rfc3339(move.at)}  {badge(move.new)}{lasted}")
        if isinstance(turns, RunTurns):
            for row in turns.turns:
                if turn in {None, row.number}:
                    _print_turn(output, row, agent)
            for posting in turns.notable_postings:
                output.text(safe_text(str(posting)))
            return
        if self.sent:
            output.text("")
            output.text("conversation, sent from this machine")
        for action in self.sent:
            kind = WRITE_KINDS[action.kind].words
            output.text(f"  {rfc3339(action.created_at)}  {kind}  {state_text(action)}  {action.action_id}")
            for line in safe_block(instructions_of(action)):
                output.text(f"    {line}")


@click.command("show", cls=FactCommand)
@RUN_ID
@click.option("--cached", is_flag=True, help="Use the cache only; do not contact the service.")
@async_command
async def show(invocation: Invocation, *, run_id: str, cached: bool) -> int:
    """Show a run: another name of `runs view`, with a different JSON document."""
    output = invocation.output
    is_table = output.format is Format.TABLE
    run_turns = None
    async with invocation.engine(needs_token=not cached) as engine:
        asked_at = engine.clock()
        lookup = RunLookup(engine)
        try:
            run = await lookup.find_cached(run_id) if cached else await lookup.find_current(run_id)
        except ApiError as error:
            raise of_api_error(error, hint=CACHED_HINT) from error
        about = await _About.read(engine, run)
        view = about.view
        if is_table and view.detail and not cached:
            with suppress(ApiError):
                network = Network.of(engine.profile)
                run_turns = await Results(engine.settings, engine.extension, network).turns(view.detail)
    # If the service did not show the run just now, the facts are those of the last time it did.
    is_live = view.presence == "lost" or (view.detail is not None and view.detail.last_seen_at >= asked_at)
    turns = [(action, as_received(action.body_json).get("instructions")) for action in about.sent]
    document = {
        "run": view.document(),
        "conversation": [{**action_document(action), "instructions": text} for action, text in turns],
        "as_of": rfc3339(view.detail.last_seen_at if view.detail else view.now - view.ahead),
        "source": "live" if is_live and not cached else "cache",
    }
    if is_table:
        about.print_to(output, run_turns)
    else:
        output.record(document, about.pairs(is_table=False))
    if is_table and not is_live and not cached:
        output.note("The service did not return this run just now: it is shown as last seen.")
    return Exit.DONE


@click.command("view", cls=FactCommand)
@RUN_ID
@TURN_OPTION
@async_command
async def view(invocation: Invocation, *, run_id: str, turn: int | None) -> int:
    """Show a run: its fields and timeline, and turn by turn its instructions, how it ended and why, and its commit.

    Turns come from the service's results or from git. RUN_ID may be abbreviated, as long as it is unique.
    """
    output = invocation.output
    async with open_results(invocation, run_id) as (engine, results, detail):
        about = await _About.read(engine, detail.run)
        answer = await results.turns(detail)
    if isinstance(answer, Unavailable) and output.format is Format.TABLE:
        about.print_to(output, answer)
    run_turns = require(answer)
    turns = [entry for entry in run_turns.turns if turn in {None, entry.number}]
    if turn is not None and not turns:
        raise command_error(
            "not_found", f"The run {detail.run.run_id} has no turn {turn}; it has {len(run_turns.turns)}."
        )
    if output.format is Format.TABLE:
        about.print_to(output, run_turns, turn)
        output.note(run_turns.note)
        return Exit.DONE
    document = {
        "run": spec_fields(detail.run),
        "turns": [
            facts(entry, TURN_FACTS)
            | to_builtins({name: getattr(entry, name) for name in ("usage", "usage_by_agent", "messages")})
            for entry in turns
        ],
        "agent": run_turns.agent,
        "source": run_turns.source,
        "note": run_turns.note,
        "postings": [asdict(entry) for entry in run_turns.postings],
        "as_of": rfc3339(detail.last_seen_at),
    }
    run = detail.run
    pairs = [("run_id", run.run_id), ("status", run.status), ("repository", run.repository.label)]
    pairs += [("agent", run_turns.agent)] if run_turns.agent else []
    output.record(document, [*pairs, ("branch_name", run.branch_name), ("turns", str(len(run_turns.turns)))])
    return Exit.DONE


def _print_turn(output: Output, turn: "Turn", agent: str | None) -> None:
    files = plural(turn.files, "file") if turn.files else ""
    took = ""
    if turn.started_at is not None and turn.ended_at is not None:
        took = span((turn.ended_at - turn.started_at).total_seconds(), pads_hours=False)
    head = (
        f"turn {turn.number}",
        turn.state,
        rfc3339(turn.started_at) or "",
        took,
        f"by {turn.caller}" if turn.caller else "",
        f"by the fallback {turn.agent}" if agent and turn.agent and turn.agent != agent else "",
        f"{files} +{turn.additions or 0} -{turn.deletions or 0}" if files else "",
        "not pushed" if turn.is_unpushed else "",
        f"from turn {turn.from_turn}" if turn.from_turn else "",
        str(turn.usage or ""),
    )
    output.text("")
    output.text("  ".join(safe_text(part) for part in head if part))
    for line in safe_block(turn.instructions or ""):
        output.text(f"  > {line}")
    for message in turn.messages:
        about = ", ".join(filter(None, (f"said by {message.caller or 'a caller'}", message.state)))
        output.text(f"  {safe_text(f'{about}: {message.text}')}")
    if turn.artifacts:
        output.text(f"  {plural(len(turn.artifacts), 'artifact')}: runs artifacts lists and saves them")
    for name in ("reason", "summary", "offer", "commit"):
        if text := getattr(turn, name):
            for line in safe_block(text):
                output.text(f"  {name}: {line}")


@click.command("open", cls=FactCommand)
@RUN_ID
@click.option("--pull-request", "pull", is_flag=True, help="Open the pull or merge request that the service opened.")
@async_command
async def open_(invocation: Invocation, *, run_id: str, pull: bool) -> int:
    """Open a run in the browser, by the address that `console.run_url` or the service gives; print that address."""
    if pull:
        async with open_results(invocation, run_id) as (_, results, detail):
            turns = require(await results.turns(detail))
        pulls = [posting for posting in turns.postings if posting.kind == "pull_request"]
        address = next((posting.url for posting in pulls if posting.url), None)
        if address is None:
            owed = f": {pulls[0]}" if pulls else ""
            raise command_error(
                "not_found", f"The service opened no pull request for the run {detail.run.run_id}{owed}."
            )
    else:
        async with invocation.engine(needs_token=False) as engine:
            run = await RunLookup(engine).find(run_id)
            template = engine.settings.console.run_url
            address = run_address(template, run) if template else await engine.extension.page(run.run_id)
        if address is None:
            raise command_error("config", NO_PAGE)
    import webbrowser  # Searches for every installed browser, so it is imported only when needed.

    is_open = webbrowser.open(address)
    invocation.output.record({"url": address, "opened": is_open}, [("url", address)])
    if not is_open:
        invocation.output.note("No browser found.")
    return Exit.DONE


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

    Prints the last 64 KiB; --all prints everything. For a known program it is a conversation: what the agent said, ran
    and edited, with the beginning and the end of long outputs. On a terminal colours are shown and every
    other control is visible; into a pipe it is plain lines, with --raw the log's own bytes. On a terminal --raw prints
    whole lines with visible controls, unless --allow-escapes is given. --follow --json prints one
    event a line: step, text (if the steps are unknown), then usage and end.
    """
    is_table = invocation.output.format is Format.TABLE
    if not is_table and (options["raw"] or (options["follow"] and invocation.output.format is Format.CSV)):
        raise click.UsageError("--raw prints bytes, and --follow lines or --json: leave out --output")
    if is_events := options["follow"] and not is_table:
        invocation.asked_format = Format.NDJSON
    events = list[tuple[str, Document]]()

    def emit(name: str, event: Document) -> None:
        if is_events:
            invocation.output.print(invocation.output.json({"event": name, **event}))
        else:
            events.append((name, event))

    async with invocation.engine(needs_token=True) as engine:
        run = await RunLookup(engine).find(run_id)
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
        steps_of = partial(StepLines, "--all shows them", invocation.output.colour, is_whole)
        readers = [LogReader(*about, form, steps_of(), None if is_table else emit) for form in forms]
        try:
            chunk, *more = [await reader.print(offset, follows=options["follow"]) for reader in readers]
        except asyncio.CancelledError:
            if not options["follow"]:
                raise
            # ^C is the usual way to stop and no error; the exit code is the signal's.
            return Exit.DONE
        if options["follow"]:
            run_turns_now = require(await engine.extension.turns(run.run_id))
            last = next((item for item in run_turns_now.turns if item.number == number), Turn(number, ""))
            if is_events and last.usage is not None:
                emit("usage", asdict(last.usage))
            if is_events:
                emit("end", {"run_id": run.run_id, "turn": number} | facts(last, END_FACTS))
            else:
                invocation.output.note(f"turn {number}: {last.outcome or 'not ended'}")
            return Exit.DONE if last.outcome == "completed" else Exit.FAILED
    if not is_table:
        text = "\n".join(str(item["text"]) for name, item in events if name == "text")
        steps = None
        if more[0].steps is not None:
            steps = [item for name, item in events if name == "step"]
        document = {"run_id": run.run_id, "turn": number, "size": chunk.size, "ended": chunk.ended}
        invocation.output.record({**document, "text": text, "steps": steps}, [("log", text)])
    return Exit.DONE


@dataclass(slots=True)
class LogReader:
    """Reads one turn's log, and prints it."""

    engine: "Engine"
    output: Output
    run_id: str
    turn: int
    form: LogForm
    steps: StepLines
    """Its `whole` is also whether long lines are cut."""
    emit: Callable[[str, Document], None] | None
    """Takes a `step` or the `text` of a line. None: they are printed for people."""
    _rest: bytes = b""
    """A line that has no end yet."""

    async def print(self, offset: int, *, follows: bool) -> LogChunk:
        """Print from an offset to the present end; return the last piece.

        With `follows`, until the turn has ended and all of it is here; failures of the connection are waited out.

        Raises:
            ApiError: Waiting would change nothing.
            CommandFailedError: The log is gone.
        """
        chunk = await self._read(offset, follows=False)
        if offset < 0 < chunk.offset and self.form != "bytes":
            if self.form != "only_steps":
                self.output.note(f"{chunk.offset:,} earlier bytes are left out: --all prints them.")
            chunk = replace(chunk, data=chunk.data.partition(b"\n")[2] or chunk.data)
        while self.form != "only_steps" or chunk.steps is not None:
            self._print(chunk)
            is_at_end = chunk.next_offset >= chunk.size
            if (chunk.ended and is_at_end) if follows else (is_at_end or chunk.next_offset == chunk.offset):
                break
            asked_offset = chunk.next_offset
            chunk = await self._read(asked_offset, follows=follows)
            if follows and chunk.offset < asked_offset:
                self.output.note("The log was replaced by a shorter one.")
            if follows and chunk.next_offset == chunk.offset and not chunk.ended:
                await asyncio.sleep(REST_S)
        if self._rest and chunk.ended:
            self._line(self._rest)
            self._rest = b""
        return chunk

    async def _read(self, offset: int, *, follows: bool) -> LogChunk:
        before = 0 if self.form in {"steps", "only_steps"} else None
        wait_s = WAIT_S if follows else 0
        ask = partial(self.engine.extension.log, self.run_id, self.turn, offset=offset, wait_s=wait_s, before=before)
        while True:
            self.output.flush()
            try:
                return require(await ask())
            except ApiError as error:
                if not follows or not error_kind(error.kind).passes:
                    raise
                self.output.note(f"Still following; {error.message}")
                await asyncio.sleep(PAUSE_S)

    def _print(self, chunk: LogChunk) -> None:
        if self.form == "bytes":
            self.output.write(chunk.data)
            return
        for step in chunk.steps or ():
            if self.emit:
                self.emit("step", asdict(step) | {"at": rfc3339(step.at)})
                continue
            for line in self.steps.of(step):
                self.output.print(line)
        *raw_lines, self._rest = (self._rest + chunk.data).split(b"\n")
        if len(self._rest) > (NO_LIMIT if self.steps.whole else MAX_LINE):
            raw_lines.append(self._rest)
            self._rest = b""
        for raw in raw_lines:
            self._line(raw)

    def _line(self, raw: bytes) -> None:
        limit = NO_LIMIT if self.steps.whole else MAX_SHOWN
        colour = self.output.colour and self.emit is None
        line = safe_log_line(raw.decode("utf-8", "replace"), limit=limit, colour=colour)
        if self.emit:
            self.emit("text", {"text": line})
        else:
            self.output.print(line)
