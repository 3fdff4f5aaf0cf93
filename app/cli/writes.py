"""Writes from the command line: sent once through the ledger, and reported with their outcome."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from app.cli.documents import RESULT_KEYS, write_document
from app.cli.exits import EXIT_BY_KIND, Exit, failed
from app.cli.output import Output
from app.events import ActionChanged, Event
from app.run_document import as_received
from storage.records import Action

if TYPE_CHECKING:
    from app.actions import AlreadyAskedError
    from app.api.requests import WriteRequest
    from app.engine import Engine

SHOWN: Final = {
    "run": ("run_id", "status", "branch_name"),
    "execution": ("execution_id", "agent_name", "repository", "status"),
    "organization": ("organization_id", "organization_name", "organization_slug"),
    "project": ("project_path", "status", "error"),
}
"""Fields of the result to show."""


async def carry_out(
    engine: "Engine", request: "WriteRequest", *, key: str | None = None, again: bool = False
) -> Action:
    """Submit the request and return the settled action, also when interrupted.

    The same request under the same key is sent once, and reported again afterwards.

    Raises:
        ActionRefusedError: Nothing was sent.
        CommandFailedError: The key was used for another request.
    """
    from app.actions import AlreadyAskedError

    try:
        return await _settled(engine, engine.actions.submit(request, key=key, again=again))
    except AlreadyAskedError as asked:
        return _same(asked, request, key)


def _same(asked: "AlreadyAskedError", request: "WriteRequest", key: str | None) -> Action:
    """What the key has sent, if that was the same request."""
    from app.api.requests import as_json

    existing = asked.existing
    if (existing.path, existing.body_json) != (request.path, as_json(request)):
        raise failed(
            "already_asked",
            f"The key {key!r} was used for another request ({existing.action_id}). Nothing was sent; "
            "choose another key.",
            action_id=existing.action_id,
        ) from asked
    return existing


async def rehearse(engine: "Engine", request: "WriteRequest", *, key: str | None, again: bool) -> Action | None:
    """Check whether `carry_out` would send the request, without sending it; return what the key has sent already.

    Raises:
        ActionRefusedError, CommandFailedError: It would be refused, as by `carry_out`.
    """
    from app.actions import AlreadyAskedError

    try:
        await engine.actions.rehearse(request, key=key, again=again)
    except AlreadyAskedError as asked:
        return _same(asked, request, key)
    return None


async def resend(engine: "Engine", action_id: str) -> Action:
    """Send an action of unknown outcome again and return its successor.

    Raises:
        ActionRefusedError: Nothing was sent.
        WrongStateError: The action's outcome is not unknown.
    """
    return await _settled(engine, engine.actions.send_again(action_id))


async def _settled(engine: "Engine", sending: Awaitable[Action]) -> Action:
    touched: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, ActionChanged):
            touched.append(event.action_id)

    unsubscribe = engine.subscribe(listen)
    try:
        return await sending
    except asyncio.CancelledError:
        # The ledger has settled it by now; the interrupted command reports what is known.
        action = await engine.ledger.action(touched[-1]) if touched else None
        if action is None:
            raise
        return action
    finally:
        unsubscribe()


def exit_of(action: Action) -> Exit:
    """The exit code for an action's state."""
    match action.state:
        case "confirmed":
            is_refused = action.kind == "gitlab.onboard" and as_received(action.response_json).get("success") is False
            return Exit.FAILED if is_refused else Exit.DONE
        case "not_created":
            return Exit.USAGE
        case "prepared" | "sending" | "unknown":
            return Exit.UNKNOWN_OUTCOME
        case "rejected" | "not_sent":
            return EXIT_BY_KIND.get(action.error.kind, Exit.USAGE) if action.error else Exit.USAGE


def tell(output: Output, action: Action, document: dict[str, object] | None = None) -> Exit:
    """Print a write and its outcome, or the given document; return the exit code."""
    document = document or write_document(action)
    made = document.get(RESULT_KEYS[action.kind])
    pairs = [("action", action.action_id), ("state", action.state)]
    for name in SHOWN[RESULT_KEYS[action.kind]]:
        value = made.get(name) if isinstance(made, dict) else None
        if value is not None:
            pairs.append((name, str(value)))
    output.record(document, pairs)
    if not output.format.is_json:
        output.note(advice(action))
    return exit_of(action)


def advice(action: Action) -> str:
    """What to know or do next; empty if there is nothing to say."""
    reason = action.error.message if action.error else ""
    match action.state:
        case "unknown":
            return (
                f"The outcome is unknown: {reason} It may have taken effect; it is not sent again automatically. "
                "Find out, then: "
                f"runwarden actions resolve {action.action_id} --created ID | --not-created | --send-again"
            )
        case "prepared" | "sending":
            return f"Another process is sending it: runwarden actions show {action.action_id}"
        case "not_sent":
            return f"Nothing was sent: {reason} You may try again."
        case "rejected":
            return f"The service refused: {reason}"
        case "not_created":
            return "It was resolved as without effect: you may send it again."
        case "confirmed":
            return ""
