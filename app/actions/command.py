"""`runwarden actions`: the ledger of writes, and decisions on unknown outcomes."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import click

from app.actions.candidates import Proposal
from app.actions.command_writes import (
    DRY_RUN_OPTION,
    action_document,
    advice,
    finish_send,
    print_request,
    print_write,
    state_text,
    subject,
    write_document,
)
from app.actions.reconciliation import LISTED
from app.api.requests import request_of
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error
from app.cli.options import COUNT, OUT_OPTION, CommandGroup, async_command, options_of, reading
from app.cli.output import Column, facts
from app.cli.running import asking
from app.engine.text import safe_block, safe_text
from app.engine.times import exact_ago, parse_period, rfc3339
from app.runs.document import spec_fields
from storage.ledger import Ledger
from storage.records import WRITE_KINDS, Action, ActionFilter, ActionKind, ActionState, Surface
from storage.values import utc_now

TONES: Final = {"confirmed": "good", "rejected": "bad", "unknown": "warn", "sending": "busy", "not_sent": "dim"}


BEGINNING: Final = reading(lambda text: parse_period(text, datetime.now(UTC))[0])
END: Final = reading(lambda text: parse_period(text, datetime.now(UTC))[1])
_SINCE: Final = "Requested at or after this time: RFC 3339, -2h, -7d."
_UNTIL: Final = "Requested at or before this time; a date includes its day."
FILTERS: Final = options_of(
    click.option("--state", "states", multiple=True, type=click.Choice(get_args(ActionState)), help="Repeatable."),
    click.option("--kind", "kinds", multiple=True, type=click.Choice(get_args(ActionKind)), help="Repeatable."),
    click.option("--surface", "surfaces", multiple=True, type=click.Choice(get_args(Surface)), help="Repeatable."),
    click.option("--actor", metavar="NAME", help="Who requested it: a login name, or NAME@HOST."),
    click.option("--from", "since", callback=BEGINNING, metavar="TIME", help=_SINCE),
    click.option("--to", "until", callback=END, metavar="TIME", help=_UNTIL),
)
EXPORTED: Final = (
    *("created_at", "user", "host", "surface", "actor", "kind", "subject", "base_url", "path", "body", "state"),
    *("resolution", "result_id", "error", "http_status", "message"),
    *("sending_at", "settled_at", "key", "superseded_by", "action_id", "resolved_at", "resolved_by"),
)
"""The columns of an export as CSV or a table."""


actions = CommandGroup("actions", help="List, export, show and resolve the writes sent from here.")


@actions.command("list", short_help="List writes, newest first.")
@FILTERS
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of actions.")
@async_command
async def list_actions(invocation: Invocation, /, *, limit: int, **filters: Any) -> int:
    """List writes, newest first; does not contact the service."""
    async with invocation.ledger() as ledger:
        rows = await ledger.actions(ActionFilter(**filters), limit)
    now = utc_now()
    columns: tuple[Column[Action], ...] = (
        Column("state", state_text, "state", lambda a: a.state, tone=lambda a: TONES.get(a.state, "")),
        Column("kind", lambda a: WRITE_KINDS[a.kind].words, "kind", lambda a: a.kind),
        Column("subject", subject, "subject", flexible=True),
        Column("asked", lambda a: exact_ago(a.created_at, now), "created_at", lambda a: rfc3339(a.created_at)),
        Column("made", lambda a: a.result_id or "", "result_id", flexible=True),
        Column("action", lambda a: a.action_id, "action_id"),
    )
    entries = [action_document(action) for action in rows]
    invocation.output.listing("actions", entries, columns, rows, empty="No write matches.")
    return Exit.DONE


@actions.command("export", short_help="Export the writes that match, as an audit.")
@FILTERS
@OUT_OPTION
@async_command
async def export(invocation: Invocation, /, *, out: Path | None, **filters: Any) -> int:
    """Export the writes that match, newest first, as NDJSON unless --output says otherwise.

    Each shows who asked, on which machine, with which part of the program, when and why, which service it went to,
    and its outcome. Does not contact the service.
    """
    invocation.asked_format = invocation.asked_format or Format.NDJSON
    columns: tuple[Column[dict[str, object]], ...] = tuple(Column(name, name=name) for name in EXPORTED)
    async with invocation.ledger() as ledger:
        with invocation.exporting(out, "actions", columns) as rows:
            last: str | None = None
            while page := await ledger.actions(ActionFilter(**filters), 500, last):
                entries = []
                flat = []
                for action in page:
                    document = action_document(action)
                    error = action.error
                    steps = [
                        facts(step, "at detail") | {"step": step.transition} | facts(step.author, "user host surface")
                        for step in await ledger.audit(action.action_id)
                    ]
                    entries.append({**document, "steps": steps})
                    more = {"subject": subject(action), "body": action.body_json, "error": error and error.kind}
                    message = {"http_status": error and error.http_status, "message": error and error.message}
                    flat.append({**document, **more, **message})
                rows.add(entries, flat)
                rows.output.flush()
                last = page[-1].action_id
            rows.end()
    return Exit.DONE


@actions.command("show")
@click.argument("action_id")
@click.option("--candidates", is_flag=True, help="Ask the service which runs it may have created.")
@async_command
async def show(invocation: Invocation, /, *, action_id: str, candidates: bool) -> int:
    """Show one write: its request, its time and its outcome. ACTION_ID may be abbreviated."""
    proposal = None
    async with invocation.engine(needs_token=candidates) as engine:
        action = await _find_action(engine.ledger, action_id)
        is_listed = action.kind in LISTED and action.sending_at is not None
        if candidates and not is_listed:
            message = "Only runs and organizations are listed by the service: nothing else can be looked up."
            raise command_error("usage", message, action_id=action.action_id)
        if candidates:
            proposal = await engine.reconciliation.ask(action)
        elif is_listed and action.state == "unknown":
            proposal = await engine.reconciliation.cached_proposal(action)
    document: dict[str, object] = {"action": action_document(action)}
    if proposal is not None:
        document["candidates"] = [
            *(spec_fields(candidate.run) for candidate in proposal.candidates),
            *(facts(invited, "organization_id email state sent_at") for invited in proposal.organizations),
        ]
        document["certain"] = proposal.is_certain
    pairs = [
        ("action_id", action.action_id),
        ("kind", action.kind),
        ("state", state_text(action)),
        ("subject", subject(action)),
        ("actor", action.actor),
        ("asked", rfc3339(action.created_at)),
        ("sent", rfc3339(action.sending_at)),
        ("settled", rfc3339(action.settled_at)),
        ("resolved", f"{rfc3339(action.resolved_at)} by {action.resolved_by.name}" if action.resolved_at else None),
        ("made", action.result_id),
        ("error", f"{action.error.kind}: {action.error.message}" if action.error else None),
        ("sent again as", action.superseded_by),
    ]
    output = invocation.output
    output.record(document, [(label, value) for label, value in pairs if value])
    if output.format is Format.TABLE:
        output.text("")
        output.text(f"POST {action.path}")
        for line in safe_block(json.dumps(json.loads(action.body_json), indent=2, ensure_ascii=False)):
            output.text(line)
        if action.is_open:
            output.note(advice(action, invocation.command_line))
        if proposal:
            for candidate in _candidate_lines(proposal):
                output.text(safe_text(candidate, limit=300))
    return Exit.DONE


def _candidate_lines(proposal: Proposal) -> Iterator[str]:
    """One line for each possible result, with the evidence for it."""
    for candidate in proposal.candidates:
        evidence = [candidate.when]
        if candidate.is_same is not None:
            evidence.append("same words" if candidate.is_same else "other words")
        if candidate.caller:
            evidence.append(f"by {candidate.caller}")
        if candidate.is_marked:
            evidence.append("carries this action's id")
        run = candidate.run
        yield "  ".join(filter(None, ("candidate", run.run_id, ", ".join(evidence), run.status, run.branch_name)))
    for invited in proposal.organizations:
        yield f"candidate  {invited.organization_id}  invitation to {invited.email}  {invited.state}"


@actions.command("resolve")
@click.argument("action_id")
@click.option("--created", metavar="ID", help="It took effect and created this run, execution or organization.")
@click.option("--not-created", is_flag=True, help="It had no effect.")
@click.option("--send-again", is_flag=True, help="Send it again; it may then be done twice.")
@click.option("--undo", is_flag=True, help="Undo a resolution: the outcome is unknown again.")
@click.option("--force", is_flag=True, help="With --created: record the id although it looks wrong.")
@click.option("--confirm", metavar="TEXT", help="With --send-again, without a terminal: the text to confirm with.")
@DRY_RUN_OPTION
@async_command
async def resolve(
    invocation: Invocation, /, *, action_id: str, force: bool, confirm: str | None, dry_run: bool, **decision: Any
) -> int:
    """Record the outcome of a write whose outcome is unknown."""
    if [value not in {None, False} for value in decision.values()].count(True) != 1:
        raise click.UsageError("Give one of --created ID, --not-created, --send-again or --undo")
    if dry_run and not decision["send_again"]:
        raise click.UsageError("--dry-run is for --send-again: nothing else is sent")
    created = None if decision["created"] is None else decision["created"].strip()
    if created == "":
        raise command_error("usage", "--created needs the id of the result.")
    if decision["send_again"]:
        return await _send_again(invocation, action_id, confirm, dry_run=dry_run)
    async with invocation.engine(needs_token=False) as engine:
        action = await _find_action(engine.ledger, action_id)
        if decision["undo"]:
            action = await engine.actions.undo_resolution(action.action_id)
        else:
            if created is not None and action.state == "unknown" and not force:
                await engine.reconciliation.check(action, created)
            action = await engine.actions.resolve(action.action_id, created)
    document = write_document(action)
    if not decision["undo"]:
        # The outcome is known now, so the earlier error no longer matters.
        document.pop("error", None)
    return print_write(invocation, action, document, code=Exit.DONE)


async def _send_again(invocation: Invocation, action_id: str, confirm: str | None, *, dry_run: bool) -> int:
    """Send an unknown action again once you confirm it, or show the request that this would send."""
    async with invocation.ledger() as ledger:
        action = await _find_action(ledger, action_id)
    if action.state != "unknown" or action.resolution is not None:
        message = f"{action.action_id} is {state_text(action)}: only an unknown, unresolved action can be sent again."
        raise command_error("wrong_state", message)
    if dry_run:
        async with invocation.writer(dry_run=True) as engine:
            engine.actions.check(request_of(action))
        return print_request(invocation, engine.client.base_url, request_of(action))
    text = safe_text(action.subject or action.action_id)
    if confirm is None:
        with asking(invocation):
            question = f"It may then be done twice. Type {text} to send it again"
            confirm = click.prompt(question, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    if confirm.strip() != text:
        message = f"Not confirmed, nothing was sent: add --confirm {text} to --send-again."
        raise command_error("not_confirmed", message, expected=text)
    async with invocation.writer() as engine:
        successor = await finish_send(engine.actions.send_again(action.action_id))
    return print_write(invocation, successor)


async def _find_action(ledger: Ledger, action_id: str) -> Action:
    """The action with this id, or with an id that begins like this; none, or several, are an error."""
    if not action_id.strip():
        raise command_error("usage", "Give an action's id, or its first characters. See: runwarden actions list")
    action = await ledger.action(action_id)
    if action is None:
        raise command_error(
            "not_found", f"There is no action {action_id}. See: runwarden actions list", action_id=action_id
        )
    return action
