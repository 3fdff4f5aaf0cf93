"""Cancellations of unknown outcome: the run itself shows whether they took effect."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.actions.actions import Actions
from app.actions.refusals import ActionRefusedError
from app.api.errors import ApiError
from app.api.requests import CancelRun, WriteRequest, request_of
from storage.ledger import LedgerRefusedError
from storage.records import CANCELLED, Action

LOOK_S: Final = 2.0
"""Seconds between two checks of unknown cancellations."""
REST_S: Final = 5.0
"""Seconds until a new unknown cancellation is noticed."""
LONGEST_PAUSE: Final = timedelta(hours=1)
"""The longest time between two checks of the same cancellation."""


async def look(actions: Actions, action: Action) -> Action:
    """Record the outcome of an unknown cancellation, if the run's turn shows it; return the action.

    Raises:
        ActionRefusedError, LedgerRefusedError: It cannot be recorded.
        StorageError: The ledger cannot be written.
    """
    request = request_of(action)
    if action.state != "unknown" or action.resolution is not None or not isinstance(request, CancelRun):
        return action
    try:
        turns = (await actions.client.run_detail(request.run_id)).turns
    except ApiError:
        return action
    # It was about the last turn, unless that was started later.
    sent_at = action.sending_at or action.created_at
    begun = [turn for turn in turns if turn.started_at is None or turn.started_at <= sent_at] or turns
    if not begun:
        return action
    if (turn := begun[-1]).outcome == CANCELLED:
        return await actions.resolve_created(action.action_id, request.run_id)
    # While the run works, the request may still be on its way.
    return action if turn.outcome is None else await actions.resolve_not_created(action.action_id)


async def submitted(
    actions: Actions,
    request: WriteRequest,
    key: str | None = None,
    *,
    again: bool = False,
    patience_s: float | None = None,
) -> Action:
    """The action after `Actions.submit`; if it is a cancellation of unknown outcome, the run is asked for that.

    Raises:
        ActionRefusedError: Nothing was sent.
        StorageError: The ledger cannot be written.
    """
    action = await actions.submit(request, key=key, again=again)
    # Consoles and bots look again in the background; another process may have recorded the outcome first.
    with suppress(TimeoutError, ActionRefusedError, LedgerRefusedError):
        async with asyncio.timeout(patience_s):
            return await look(actions, action)
    return await actions.ledger.action(action.action_id) or action


@dataclass(slots=True)
class Cancellations:
    """Checks in the background the runs with an unknown cancellation."""

    actions: Actions
    _next: dict[str, datetime] = field(default_factory=dict)
    """When the run of an action is checked next."""

    async def work(self) -> float:
        """Check the runs that are due; return the seconds until the next check."""
        now = self.actions.clock()
        unresolved = await self.actions.ledger.unresolved()
        for action in unresolved:
            is_due = self._next.get(action.action_id, now) <= now
            if action.kind == CancelRun.kind and is_due and not self.actions.read_only:
                age = now - action.created_at
                self._next[action.action_id] = now + min(max(age, timedelta(seconds=LOOK_S)), LONGEST_PAUSE)
                with suppress(ActionRefusedError, LedgerRefusedError):  # Another process recorded the outcome first.
                    await look(self.actions, action)
        return LOOK_S if unresolved else REST_S
