"""`runwarden actions resolve`: a person's decision on a write of unknown outcome, and its undoing."""

import sys
from typing import TYPE_CHECKING, Any

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import FactCommand
from app.cli.output.documents import state_text, write_document
from app.cli.writes import resend, tell
from app.cli.writes.command import DRY_RUN_OPTION, tell_request
from app.text import safe_text
from storage.records import Action

if TYPE_CHECKING:
    from storage.ledger import Ledger


@click.command("resolve", cls=FactCommand)
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
    invocation: Invocation, /, *, action_id: str, force: bool, confirm: str | None, dry_run: bool, **word: Any
) -> int:
    """Record the outcome of a write whose outcome is unknown."""
    if [given not in {None, False} for given in word.values()].count(True) != 1:
        raise click.UsageError("Give one of --created ID, --not-created, --send-again or --undo")
    if dry_run and not word["send_again"]:
        raise click.UsageError("--dry-run is for --send-again: nothing else is sent")
    if dry_run:
        return invocation.run(lambda: _rehearse(invocation, action_id))
    if word["send_again"]:
        # Prompt outside the event loop, where Ctrl-C still ends it.
        action = invocation.run(lambda: _unresolved(invocation, action_id))
        _confirm(action, confirm)
        return invocation.run(lambda: _send_again(invocation, action.action_id))
    if word["undo"]:
        return invocation.run(lambda: _undo(invocation, action_id))
    return invocation.run(lambda: _settle(invocation, action_id, word["created"], forced=force))


async def _settle(invocation: Invocation, action_id: str, created: str | None, *, forced: bool) -> int:
    from app.reconcile.result_ids import check_result_id

    if created is not None and not created.strip():
        raise failed("usage", "--created needs the id of what was created.")
    async with invocation.engine(needs_token=False) as engine:
        action = await named(engine.ledger, action_id)
        if created is None:
            action = await engine.actions.resolve_not_created(action.action_id)
        else:
            if action.state == "unknown" and not forced:
                await check_result_id(action, created.strip(), engine.reconciliation)
            action = await engine.actions.resolve_created(action.action_id, created.strip())
    # Resolved: the reason for the unknown outcome no longer matters.
    document = {name: value for name, value in write_document(action).items() if name != "error"}
    return tell(invocation, action, document, code=Exit.DONE)


async def _undo(invocation: Invocation, action_id: str) -> int:
    async with invocation.engine(needs_token=False) as engine:
        action = await engine.actions.undo_resolution((await named(engine.ledger, action_id)).action_id)
    return tell(invocation, action, code=Exit.DONE)


async def _rehearse(invocation: Invocation, action_id: str) -> int:
    from app.api.requests import request_of

    async with invocation.writer(dry_run=True) as engine:
        action = _refuse_resolved(await named(engine.ledger, action_id))
        engine.actions.check(request_of(action))
    return tell_request(invocation.output, engine.client.base_url, request_of(action))


async def _unresolved(invocation: Invocation, action_id: str) -> Action:
    async with invocation.ledger() as ledger:
        return _refuse_resolved(await named(ledger, action_id))


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


async def named(ledger: "Ledger", action_id: str) -> Action:
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
