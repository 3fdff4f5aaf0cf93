"""Cancelling: whether a cancellation of unknown outcome took effect is found out by looking at the run."""

from app.actions.actions import Actions
from app.api.errors import ApiError
from app.api.requests import CancelRun, request_of
from storage.records import Action

CANCELLED = "cancelled"


async def look(actions: Actions, action: Action) -> Action:
    """Record what became of a cancellation of unknown outcome, where the run's last turn tells; return the action.

    Raises:
        ActionRefusedError, LedgerRefusedError: It cannot be recorded.
        StorageError: The ledger cannot be written.
    """
    request = request_of(action)
    if action.state != "unknown" or action.resolution is not None or not isinstance(request, CancelRun):
        return action
    try:
        last = (await actions.client.run_detail(request.run_id)).turns[-1]
    except (ApiError, IndexError):
        return action
    if last.outcome == CANCELLED:
        return await actions.resolve_created(action.action_id, request.run_id)
    # While it works, the request may still be on its way.
    return action if last.outcome is None else await actions.resolve_not_created(action.action_id)
