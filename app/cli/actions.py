"""`runwarden actions`: the ledger of writes, and a person's decision on unknown outcomes."""

import json
import sys
from typing import TYPE_CHECKING

import click

from app.cli.action_list import export, list_actions, subject
from app.cli.context import Invocation
from app.cli.documents import action_document, state_text, write_document
from app.cli.exits import Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Format
from app.cli.writes import advice, resend, tell
from app.run_document import as_received
from app.text import safe_block, safe_text
from app.times import rfc3339
from storage.records import Action

if TYPE_CHECKING:
    from app.engine import Engine
    from storage.ledger import Ledger


@click.group(cls=CommandGroup)
def actions() -> None:
    """List, show and resolve the writes sent from here."""


actions.add_command(list_actions)
actions.add_command(export)


@actions.command("show", cls=FactCommand)
@click.argument("action_id")
@click.option("--candidates", is_flag=True, help="After a start of unknown outcome: list the runs it may have made.")
@async_command
async def show(invocation: Invocation, /, *, action_id: str, candidates: bool) -> int:
    """Show one write: what was sent, when, and its outcome. ACTION_ID may be abbreviated."""
    async with invocation.engine(needs_token=candidates) as engine:
        action = await _named(engine.ledger, action_id)
        found = await _candidates(engine, action) if candidates else None
    document: dict[str, object] = {"action": action_document(action), **(found or {})}
    output = invocation.output
    output.record(document, _pairs(action))
    if output.format is Format.TABLE:
        output.text("")
        output.text(f"POST {action.path}")
        for line in safe_block(json.dumps(json.loads(action.body_json), indent=2, ensure_ascii=False)):
            output.text(line)
        if action.is_open:
            output.note(advice(action))
        for run in _listed(found):
            output.text(f"candidate  {run.get('run_id')}  {run.get('status')}  {run.get('created_at')}")
    return Exit.DONE


@actions.command("resolve", cls=FactCommand)
@click.argument("action_id")
@click.option("--created", metavar="ID", help="It took effect and created this run, execution or organization.")
@click.option("--not-created", is_flag=True, help="It had no effect.")
@click.option("--send-again", is_flag=True, help="Send it again, although it may then be done twice.")
@click.option("--confirm", metavar="TEXT", help="With --send-again, without a terminal: the text to confirm with.")
@click.pass_obj
def resolve(
    invocation: Invocation,
    /,
    *,
    action_id: str,
    created: str | None,
    not_created: bool,
    send_again: bool,
    confirm: str | None,
) -> int:
    """Record the outcome of a write whose outcome is unknown."""
    if [created is not None, not_created, send_again].count(True) != 1:
        raise click.UsageError("Give one of --created ID, --not-created or --send-again")
    if send_again:
        # Prompt outside the event loop, where Ctrl-C still ends it.
        action = invocation.run(lambda: _unresolved(invocation, action_id))
        _confirm(action, confirm)
        return invocation.run(lambda: _send_again(invocation, action.action_id))
    return invocation.run(lambda: _settle(invocation, action_id, created))


async def _settle(invocation: Invocation, action_id: str, created: str | None) -> int:
    if created is not None and not created.strip():
        raise failed("usage", "--created needs the id of what was created.")
    async with invocation.engine(needs_token=False) as engine:
        action = await _named(engine.ledger, action_id)
        if created is None:
            action = await engine.actions.resolve_not_created(action.action_id)
        else:
            action = await engine.actions.resolve_created(action.action_id, created.strip())
    # Resolved: the reason for the unknown outcome no longer matters.
    document = {name: value for name, value in write_document(action).items() if name != "error"}
    return tell(invocation, action, document, code=Exit.DONE)


async def _unresolved(invocation: Invocation, action_id: str) -> Action:
    async with await invocation.ledger() as ledger:
        await ledger.adopt_orphans()
        action = await _named(ledger, action_id)
    if action.state != "unknown" or action.resolution is not None:
        raise failed(
            "wrong_state",
            f"{action.action_id} is {state_text(action)}: only an unknown, unresolved action can be sent again.",
        )
    return action


async def _send_again(invocation: Invocation, action_id: str) -> int:
    async with invocation.engine(needs_token=True) as engine:
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
    if not action_id.strip():
        raise failed("usage", "Name an action by its id or the beginning of it. See: runwarden actions list")
    action = await ledger.action(action_id)
    if action is None:
        raise failed("not_found", f"There is no action {action_id}. See: runwarden actions list", action_id=action_id)
    return action


async def _candidates(engine: "Engine", action: Action) -> dict[str, object]:
    from app.actions.reconcile import propose

    try:
        proposal = await propose(action, engine.client, engine.ledger)
    except ValueError as error:
        raise failed("usage", str(error), action_id=action.action_id) from error
    return {"candidates": [as_received(run.raw_json) for run in proposal.candidates], "certain": proposal.certain}


def _listed(found: dict[str, object] | None) -> list[dict[str, object]]:
    runs = (found or {}).get("candidates")
    return runs if isinstance(runs, list) else []


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
