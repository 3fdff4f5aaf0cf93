"""`runwarden actions`: the ledger of writes, and a person's decision on unknown outcomes."""

import json
from typing import TYPE_CHECKING

import click

from app.cli.actions.listing import export, list_actions, subject
from app.cli.actions.resolve import named, resolve
from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import CommandGroup, FactCommand, async_command
from app.cli.output import Format
from app.cli.output.documents import action_document, state_text
from app.cli.writes import advice
from app.run_document import as_received
from app.text import safe_block, safe_text
from app.times import rfc3339
from storage.records import Action

if TYPE_CHECKING:
    from app.engine import Engine
    from app.reconcile.candidates import Proposal


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
        action = await named(engine.ledger, action_id)
        found = await _proposal(engine, action, asks=candidates)
    proposed = () if found is None else found.candidates
    document: dict[str, object] = {"action": action_document(action)}
    if found is not None:
        runs = [as_received(candidate.run.raw_json) for candidate in proposed]
        document |= {"candidates": runs, "certain": found.certain}
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


actions.add_command(resolve)


async def _proposal(engine: "Engine", action: Action, *, asks: bool) -> "Proposal | None":
    """The possible results of an unknown action, in the cache or the service's list; None: nothing lists them."""
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
