"""Writes from the command line: sent once through the ledger, and reported with their outcome."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from app.cli.exits import EXIT_BY_KIND, Exit, failed
from app.cli.output.documents import RESULT_KEYS, write_document
from app.run_document import as_received
from storage.records import Action

if TYPE_CHECKING:
    from app.actions import AlreadyAskedError
    from app.api.requests import WriteRequest
    from app.cli.context import Invocation
    from app.engine import Engine

SHOWN: Final = {
    "run": ("run_id", "status", "branch_name"),
    "execution": ("execution_id", "agent_name", "repository", "status"),
    "organization": ("organization_id", "organization_name", "organization_slug"),
    "project": ("project_path", "status", "error"),
}
"""The fields of a result that a table shows."""

NOT_RECORDED: Final = "not_recorded"
"""The error's kind where the service answered and the ledger could not record it; its message names the cure."""


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
        return await _settled(engine.actions.submit(request, key=key, again=again))
    except AlreadyAskedError as asked:
        return _same(asked, request, key)


def _same(asked: "AlreadyAskedError", request: "WriteRequest", key: str | None) -> Action:
    """The earlier action of this key, if it has the same request."""
    from app.api.requests import as_json

    existing = asked.existing
    if (existing.path, existing.body_json) != (request.path, as_json(request, existing.action_id)):
        raise failed(
            "already_asked",
            f"The key {key!r} was used for another request ({existing.action_id}). Nothing was sent; "
            "choose another key.",
            action_id=existing.action_id,
        ) from asked
    return existing


async def rehearse(engine: "Engine", request: "WriteRequest", *, key: str | None, again: bool) -> Action | None:
    """Check whether `carry_out` would send the request, without sending it; return an earlier action of the key.

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
    return await _settled(engine.actions.send_again(action_id))


async def _settled(sending: Awaitable[Action]) -> Action:
    from app.actions import SendCancelledError

    try:
        return await sending
    except SendCancelledError as cancelled:
        # The interrupted command reports the action as far as it is settled.
        return cancelled.action


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


def tell(
    invocation: "Invocation", action: Action, document: dict[str, object] | None = None, *, code: Exit | None = None
) -> Exit:
    """Print a write and its outcome, or the given document, with the warnings so far; return the exit code.

    `code` replaces the action's own exit code.
    """
    output = invocation.output
    document = (document or write_document(action)) | {"warnings": list(invocation.warnings)}
    made = document.get(RESULT_KEYS[action.kind])
    pairs = [("action", action.action_id), ("state", action.state)]
    for name in SHOWN[RESULT_KEYS[action.kind]]:
        value = made.get(name) if isinstance(made, dict) else None
        if value is not None:
            pairs.append((name, str(value)))
    invocation.outcome = exit_of(action) if code is None else code
    output.record(document, pairs)
    if not output.format.is_json:
        output.note(advice(action, invocation.command_line))
    return invocation.outcome


def advice(action: Action, command_line: str) -> str:
    """Advice on the next step; empty: there is none."""
    reason = action.error.message if action.error else ""
    match action.state:
        case "unknown":
            return _way_out(action, reason, command_line)
        case "prepared" | "sending":
            return f"Another process is sending it: {command_line} actions show {action.action_id}"
        case "not_sent":
            return f"Nothing was sent: {reason} You may try again."
        case "rejected":
            return f"The service refused: {reason}"
        case "not_created":
            return "It was resolved as without effect: you may send it again."
        case "confirmed":
            return ""


def _way_out(action: Action, reason: str, command_line: str) -> str:
    if action.error is not None and action.error.kind == NOT_RECORDED:
        return reason
    return (
        f"The outcome is unknown: {reason} It may have taken effect; it is not sent again automatically. "
        f"Find out, then: {command_line} actions resolve {action.action_id} --created ID | --not-created | --send-again"
    )
