"""`runwarden runs view`, `show` and `open`: a run, its turns, and its pages."""

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from app.actions.actions import retries, retry_key
from app.api.errors import ApiError
from app.api.network import Network
from app.cli import Format
from app.cli.context import Invocation
from app.cli.documents import action_document, state_text
from app.cli.exits import CommandFailedError, Exit, failed, of_api_error
from app.cli.options import RUN_ID, FactCommand, async_command
from app.cli.output import Output, facts
from app.engine.text import plural, safe_block, safe_text
from app.engine.times import exact_ago, rfc3339, span
from app.results.source import Results
from app.runs.command_lookup import RunLookup
from app.runs.command_rows import CACHED_HINT, RunDocument, badge, views
from app.runs.document import NO_PAGE, as_received, run_address, spec_fields
from storage.records.action import WRITE_KINDS
from storage.records.results import RunTurns, Turn, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.engine.engine import Engine
    from storage.records import Action, Run, RunDetail

T = TypeVar("T")

TURN_FACTS: Final = (
    "number instructions caller state outcome reason failure_kind commit summary question choices offer "
    "started_at ended_at files additions deletions from_turn agent"
)
TURN_OPTION: Final = click.option("--turn", type=click.IntRange(1), metavar="N", help="Turn N only.")


async def _found(invocation: Invocation, engine: "Engine", run_id: str) -> "RunDetail":
    lookup = RunLookup(engine)
    try:
        run = await lookup.current(run_id)
    except ApiError as error:
        try:
            run = await lookup.cached(run_id)
        except CommandFailedError:
            raise error from None
        invocation.output.note(f"{error.message} The run is shown as last seen.")
    detail = await engine.cache.detail(run.run_id)
    if detail is None:
        raise failed("not_found", f"The run {run_id} is not in the cache.", run_id=run_id)
    return detail


@asynccontextmanager
async def opened(invocation: Invocation, run_id: str) -> "AsyncIterator[tuple[Results, RunDetail]]":
    """A run from the service or the cache, and its results."""
    async with invocation.engine(needs_token=False) as engine:
        detail = await _found(invocation, engine, run_id)
        yield Results(engine.settings, engine.extension, Network.of(engine.profile)), detail


def require(answer: T | Unavailable) -> T:
    """The answer itself.

    Raises:
        CommandFailedError: It is not available; the message says why.
    """
    if isinstance(answer, Unavailable):
        raise failed("not_found", answer.reason)
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
        """Read the cached facts about the run."""
        (view,) = await views(engine, [run])
        agent, sent = (await engine.ledger.agents()).get(run.run_id), await engine.ledger.for_run(run.run_id)
        retried = (await retries(engine.ledger)).get(retry_key(run)) if run.status == "failed" else None
        return cls(view, agent, list(sent), retried)

    def pairs(self, *, is_table: bool) -> list[tuple[str, str]]:
        """Its fields by name."""
        view, run = self.view, self.view.run
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

    def tell(self, output: Output, turns: "RunTurns | Unavailable | None", turn: int | None = None) -> None:
        """Print its fields, its timeline, and its turns, or the requests sent from here if the turns are unknown."""
        view = self.view
        agent = turns.agent if isinstance(turns, RunTurns) else None
        output.record({}, self._replace(agent=self.agent or agent).pairs(is_table=True))
        transitions = view.detail.transitions if view.detail else ()
        if transitions:
            output.text("")
            output.text("timeline, as observed")
        for each, end in zip(transitions, [each.at for each in transitions[1:]] + [view.now], strict=True):
            is_end = view.detail and each.new in view.detail.final_statuses and end is view.now
            lasted = "" if is_end else f" for {span((end - each.at).total_seconds(), pads_hours=False)}"
            output.text(f"  {rfc3339(each.at)}  {badge(each.new)}{lasted}")
        if isinstance(turns, RunTurns):
            for one in turns.turns:
                if turn in {None, one.number}:
                    _tell_turn(output, one, agent)
            for posting in turns.notable_postings:
                output.text(safe_text(str(posting)))
            return
        if self.sent:
            output.text("")
            output.text("conversation, sent from this machine")
        for action in self.sent:
            kind = WRITE_KINDS[action.kind].words
            output.text(f"  {rfc3339(action.created_at)}  {kind}  {state_text(action)}  {action.action_id}")
            for line in safe_block(str(as_received(action.body_json).get("instructions") or "")):
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
        asked_at, lookup = engine.clock(), RunLookup(engine)
        try:
            run = await lookup.cached(run_id) if cached else await lookup.current(run_id)
        except ApiError as error:
            raise CommandFailedError(of_api_error(error, hint=CACHED_HINT)) from error
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
        about.tell(output, run_turns)
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
    async with invocation.engine(needs_token=False) as engine:
        detail = await _found(invocation, engine, run_id)
        about = await _About.read(engine, detail.run)
        answer = await Results(engine.settings, engine.extension, Network.of(engine.profile)).turns(detail)
    if isinstance(answer, Unavailable) and output.format is Format.TABLE:
        about.tell(output, answer)
    run_turns = require(answer)
    turns = [each for each in run_turns.turns if turn in {None, each.number}]
    if turn is not None and not turns:
        raise failed("not_found", f"The run {detail.run.run_id} has no turn {turn}; it has {len(run_turns.turns)}.")
    if output.format is Format.TABLE:
        about.tell(output, run_turns, turn)
        output.note(run_turns.note)
        return Exit.DONE
    document = {
        "run": spec_fields(detail.run),
        "turns": [
            facts(each, TURN_FACTS)
            | to_builtins({name: getattr(each, name) for name in ("usage", "usage_by_agent", "messages")})
            for each in turns
        ],
        "agent": run_turns.agent,
        "source": run_turns.source,
        "note": run_turns.note,
        "postings": [asdict(each) for each in run_turns.postings],
        "as_of": rfc3339(detail.last_seen_at),
    }
    run = detail.run
    pairs = [("run_id", run.run_id), ("status", run.status), ("repository", run.repository.label)]
    pairs += [("agent", run_turns.agent)] if run_turns.agent else []
    output.record(document, [*pairs, ("branch_name", run.branch_name), ("turns", str(len(run_turns.turns)))])
    return Exit.DONE


def _tell_turn(output: Output, turn: "Turn", agent: str | None) -> None:
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
    for said in turn.messages:
        about = ", ".join(filter(None, (f"said by {said.caller or 'a caller'}", said.state)))
        output.text(f"  {safe_text(f'{about}: {said.text}')}")
    if turn.artifacts:
        output.text(f"  {plural(len(turn.artifacts), 'artifact')}: runs artifacts lists and saves them")
    for name in ("reason", "summary", "offer", "commit"):
        if told := getattr(turn, name):
            for line in safe_block(told):
                output.text(f"  {name}: {line}")


@click.command("open", cls=FactCommand)
@RUN_ID
@click.option("--pull-request", "pull", is_flag=True, help="Open the pull or merge request that the service opened.")
@async_command
async def open_(invocation: Invocation, *, run_id: str, pull: bool) -> int:
    """Open a run in the browser, by the address that `console.run_url` or the service gives; print that address."""
    if pull:
        async with opened(invocation, run_id) as (results, detail):
            turns = require(await results.turns(detail))
        address = turns.pull_request
        if address is None:
            owed = next((f": {one}" for one in turns.postings if one.kind == "pull_request"), "")
            raise failed("not_found", f"The service opened no pull request for the run {detail.run.run_id}{owed}.")
    else:
        async with invocation.engine(needs_token=False) as engine:
            run = await RunLookup(engine).named(run_id)
            template = engine.settings.console.run_url
            address = run_address(template, run) if template else await engine.extension.page(run.run_id)
        if address is None:
            raise failed("config", NO_PAGE)
    import webbrowser  # It looks for every installed browser: not before one is needed.

    is_open = webbrowser.open(address)
    invocation.output.record({"url": address, "opened": is_open}, [("url", address)])
    if not is_open:
        invocation.output.note("No browser found.")
    return Exit.DONE
