"""`runwarden actions`: the ledger of writes, and a person's decision on unknown outcomes."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args
from urllib.parse import unquote

import click

from app.cli.context import Invocation
from app.cli.documents import action_document, state_text, write_document
from app.cli.exits import Exit, failed
from app.cli.options import COUNT, OUT_OPTION, CommandGroup, FactCommand, as_last_moment, as_moment, async_command
from app.cli.output import Column, Format
from app.cli.writes import DRY_RUN_OPTION, advice, resend, tell, tell_request
from app.run_document import as_received
from app.text import safe_block, safe_text
from app.times import exact_ago, rfc3339
from storage.records import Action, ActionFilter, ActionKind, ActionState, Surface
from storage.values import utc_now

if TYPE_CHECKING:
    from app.engine import Engine
    from app.reconcile.candidates import Proposal
    from storage.ledger import Ledger

CHUNK: Final = 500
"""Actions per query of an export."""
TONES: Final = {"confirmed": "good", "rejected": "bad", "unknown": "warn", "sending": "busy", "not_sent": "dim"}

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--state", "states", multiple=True, type=click.Choice(get_args(ActionState)), help="Repeatable."),
    click.option("--kind", "kinds", multiple=True, type=click.Choice(get_args(ActionKind)), help="Repeatable."),
    click.option("--surface", "surfaces", multiple=True, type=click.Choice(get_args(Surface)), help="Repeatable."),
    click.option("--actor", metavar="NAME", help="Who asked: a login name, or NAME@HOST."),
    click.option(
        "--from", "since", callback=as_moment, metavar="TIME", help="Asked for then or later: RFC 3339, -2h, -7d."
    ),
    click.option("--to", "until", callback=as_last_moment, metavar="TIME", help="Asked for then or earlier."),
)


def filter_options(function: F) -> F:
    """Add the options that `list` and `export` share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command("list", cls=FactCommand, short_help="List writes, newest first.")
@filter_options
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of actions.")
@async_command
async def list_actions(invocation: Invocation, /, *, limit: int, **filters: Any) -> int:
    """List writes, newest first; does not contact the service."""
    async with invocation.ledger() as ledger:
        found = await ledger.actions(ActionFilter(**filters), limit)
    now = utc_now()
    columns: tuple[Column[Action], ...] = (
        Column("state", state_text, "state", lambda a: a.state, tone=lambda a: TONES.get(a.state, "")),
        Column("kind", lambda a: a.kind, "kind"),
        Column("subject", subject, "subject", flexible=True),
        Column("asked", lambda a: exact_ago(a.created_at, now), "created_at", lambda a: rfc3339(a.created_at)),
        Column("made", lambda a: a.result_id or "", "result_id", flexible=True),
        Column("action", lambda a: a.action_id, "action_id"),
    )
    entries = [action_document(action) for action in found]
    invocation.output.listing("actions", entries, found, columns, empty="No write matches.")
    return Exit.DONE


@click.command("export", cls=FactCommand, short_help="Export the writes that match, as an audit.")
@filter_options
@OUT_OPTION
@async_command
async def export(invocation: Invocation, /, *, out: Path | None, **filters: Any) -> int:
    """Export the writes that match, newest first, as NDJSON unless --output says otherwise.

    Each says who asked, on which machine and by which part of the program, when, what for, which service it went to,
    and what became of it. Does not contact the service.
    """
    invocation.asked_format = invocation.asked_format or Format.NDJSON
    async with invocation.ledger() as ledger:
        with invocation.exporting(out, "actions", COLUMNS) as rows:
            async for found in _pages(ledger, ActionFilter(**filters)):
                steps = [await _steps(ledger, action) for action in found]
                entries = [{**action_document(action), "steps": its} for action, its in zip(found, steps, strict=True)]
                rows.add(entries, found)
                rows.flush()
            rows.end()
    return Exit.DONE


async def _pages(ledger: "Ledger", wanted: ActionFilter) -> AsyncIterator[tuple[Action, ...]]:
    last: str | None = None
    while found := await ledger.actions(wanted, CHUNK, last):
        yield found
        last = found[-1].action_id


async def _steps(ledger: "Ledger", action: Action) -> list[dict[str, object]]:
    """The steps of the action, with their authors, oldest first."""
    return [
        {
            "at": rfc3339(step.at),
            "step": step.transition,
            "detail": step.detail,
            "user": step.author.user,
            "host": step.author.host,
            "surface": step.author.surface,
        }
        for step in await ledger.audit(action.action_id)
    ]


def subject(action: Action) -> str:
    """The subject of the write, in a few words."""
    if action.subject:
        return action.subject
    if action.kind == "agent.start":
        return unquote(action.path.split("/")[-2])
    body = as_received(action.body_json)
    return str(body.get("project_path") or body.get("project_id") or body.get("instructions") or action.path)


def _of(read: Callable[[Action], object]) -> Callable[[Action], str]:
    return lambda action: str(read(action) or "")


_FACTS: Final[tuple[tuple[str, Callable[[Action], object]], ...]] = (
    ("created_at", lambda a: rfc3339(a.created_at)),
    ("user", lambda a: a.author.user),
    ("host", lambda a: a.author.host),
    ("surface", lambda a: a.author.surface),
    ("actor", lambda a: a.actor),
    ("kind", lambda a: a.kind),
    ("subject", subject),
    ("base_url", lambda a: a.base_url),
    ("path", lambda a: a.path),
    ("body", lambda a: a.body_json),
    ("state", lambda a: a.state),
    ("resolution", lambda a: a.resolution),
    ("result_id", lambda a: a.result_id),
    ("error", lambda a: a.error and a.error.kind),
    ("http_status", lambda a: a.error and a.error.http_status),
    ("message", lambda a: a.error and a.error.message),
    ("sending_at", lambda a: rfc3339(a.sending_at)),
    ("settled_at", lambda a: rfc3339(a.settled_at)),
    ("key", lambda a: a.key),
    ("superseded_by", lambda a: a.superseded_by),
    ("action_id", lambda a: a.action_id),
)
COLUMNS: Final = tuple(Column(name, _of(read), name) for name, read in _FACTS)


@click.group(cls=CommandGroup)
def actions() -> None:
    """List, export, show and resolve the writes sent from here."""


actions.add_command(list_actions)
actions.add_command(export)


@actions.command("show", cls=FactCommand)
@click.argument("action_id")
@click.option("--candidates", is_flag=True, help="Ask the service which runs it may have made.")
@async_command
async def show(invocation: Invocation, /, *, action_id: str, candidates: bool) -> int:
    """Show one write: what was sent, when, and its outcome. ACTION_ID may be abbreviated."""
    async with invocation.engine(needs_token=candidates) as engine:
        action = await _named(engine.ledger, action_id)
        found = await _proposal(engine, action, asks=candidates)
    proposed = () if found is None else found.candidates
    document: dict[str, object] = {"action": action_document(action)}
    if found is not None:
        runs = [as_received(candidate.run.raw_json) for candidate in proposed]
        document |= {"candidates": runs, "certain": found.is_certain}
    output = invocation.output
    output.record(document, _pairs(action))
    if output.format is Format.TABLE:
        output.text("")
        output.text(f"POST {action.path}")
        for line in safe_block(json.dumps(json.loads(action.body_json), indent=2, ensure_ascii=False)):
            output.text(line)
        if action.is_open:
            output.note(advice(action, invocation.command_line))
        for each in proposed:
            output.text(safe_text(f"candidate  {each.line}", limit=300))
    return Exit.DONE


async def _proposal(engine: "Engine", action: Action, *, asks: bool) -> "Proposal | None":
    """The runs that an action of unknown outcome may have made, from the cache or the service; None: not searched."""
    from app.reconcile.candidates import FINDABLE

    is_listed = action.kind in FINDABLE and action.sending_at is not None
    if asks:
        if not is_listed:
            raise failed(
                "usage",
                "Only runs are listed by the service: nothing else can be looked up.",
                action_id=action.action_id,
            )
        return await engine.reconciliation.ask(action)
    return await engine.reconciliation.cached(action) if is_listed and action.state == "unknown" else None


def _pairs(action: Action) -> list[tuple[str, str]]:
    error = action.error
    pairs = [
        ("action_id", action.action_id),
        ("kind", action.kind),
        ("state", state_text(action)),
        ("subject", subject(action)),
        ("actor", action.actor),
        ("asked", rfc3339(action.created_at)),
        ("sent", rfc3339(action.sending_at)),
        ("settled", rfc3339(action.settled_at)),
        ("made", action.result_id),
        ("error", f"{error.kind}: {error.message}" if error else None),
        ("sent again as", action.superseded_by),
    ]
    return [(label, value) for label, value in pairs if value]


@actions.command("resolve", cls=FactCommand)
@click.argument("action_id")
@click.option("--created", metavar="ID", help="It took effect and created this run, execution or organization.")
@click.option("--not-created", is_flag=True, help="It had no effect.")
@click.option("--send-again", is_flag=True, help="Send it again, although it may then be done twice.")
@click.option("--undo", is_flag=True, help="It was resolved by mistake: its outcome is unknown again.")
@click.option("--force", is_flag=True, help="With --created: record an id that does not look right.")
@click.option("--confirm", metavar="TEXT", help="With --send-again, without a terminal: the text to confirm with.")
@DRY_RUN_OPTION
@click.pass_obj
def resolve(
    invocation: Invocation, /, *, action_id: str, force: bool, confirm: str | None, dry_run: bool, **decision: Any
) -> int:
    """Record the outcome of a write whose outcome is unknown."""
    if [given not in {None, False} for given in decision.values()].count(True) != 1:
        raise click.UsageError("Give one of --created ID, --not-created, --send-again or --undo")
    if dry_run and not decision["send_again"]:
        raise click.UsageError("--dry-run is for --send-again: nothing else is sent")
    if dry_run:
        return invocation.run(lambda: _rehearse(invocation, action_id))
    if decision["send_again"]:
        # Prompt outside the event loop, where Ctrl-C still ends it.
        action = invocation.run(lambda: _unresolved(invocation, action_id))
        _confirm(action, confirm)
        return invocation.run(lambda: _send_again(invocation, action.action_id))
    if decision["undo"]:
        return invocation.run(lambda: _undo(invocation, action_id))
    return invocation.run(lambda: _settle(invocation, action_id, decision["created"], forced=force))


async def _settle(invocation: Invocation, action_id: str, created: str | None, *, forced: bool) -> int:
    from app.reconcile.result_ids import check_result_id

    if created is not None and not created.strip():
        raise failed("usage", "--created needs the id of what was created.")
    async with invocation.engine(needs_token=False) as engine:
        action = await _named(engine.ledger, action_id)
        if created is None:
            action = await engine.actions.resolve_not_created(action.action_id)
        else:
            if action.state == "unknown" and not forced:
                await check_result_id(action, created.strip(), engine.reconciliation)
            action = await engine.actions.resolve_created(action.action_id, created.strip())
    # The outcome is now known, so the error that hid it no longer matters.
    document = {name: value for name, value in write_document(action).items() if name != "error"}
    return tell(invocation, action, document, code=Exit.DONE)


async def _undo(invocation: Invocation, action_id: str) -> int:
    async with invocation.engine(needs_token=False) as engine:
        action = await engine.actions.undo_resolution((await _named(engine.ledger, action_id)).action_id)
    return tell(invocation, action, code=Exit.DONE)


async def _rehearse(invocation: Invocation, action_id: str) -> int:
    from app.api.requests import request_of

    async with invocation.writer(dry_run=True) as engine:
        action = _refuse_resolved(await _named(engine.ledger, action_id))
        engine.actions.check(request_of(action))
    return tell_request(invocation.output, engine.client.base_url, request_of(action))


async def _unresolved(invocation: Invocation, action_id: str) -> Action:
    async with invocation.ledger() as ledger:
        return _refuse_resolved(await _named(ledger, action_id))


def _refuse_resolved(action: Action) -> Action:
    if action.state != "unknown" or action.resolution is not None:
        raise failed(
            "wrong_state",
            f"{action.action_id} is {state_text(action)}: only an unknown, unresolved action can be sent again.",
        )
    return action


async def _send_again(invocation: Invocation, action_id: str) -> int:
    async with invocation.writer() as engine:
        successor = await resend(engine, action_id)
    return tell(invocation, successor)


def _confirm(action: Action, confirm: str | None) -> None:
    text = safe_text(action.subject or action.action_id)
    if confirm is None and sys.stdin.isatty():
        confirm = click.prompt(f"It may then be done twice. Type {text} to send it again", err=True)
    elif confirm is None:
        confirm = sys.stdin.readline()
    if confirm.strip() != text:
        raise failed(
            "not_confirmed", f"Not confirmed, nothing was sent: give --confirm {text} with --send-again.", expected=text
        )


async def _named(ledger: "Ledger", action_id: str) -> Action:
    """The action that a person names by its id, or the beginning of it.

    Raises:
        CommandFailedError: There is none.
        AmbiguousActionError: There are several.
    """
    if not action_id.strip():
        raise failed("usage", "Name an action by its id or the beginning of it. See: runwarden actions list")
    action = await ledger.action(action_id)
    if action is None:
        raise failed("not_found", f"There is no action {action_id}. See: runwarden actions list", action_id=action_id)
    return action
