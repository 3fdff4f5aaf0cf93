"""One instruction to many runs: one after the other, each through the ledger, and no further than it is safe."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.actions import ActionRefusedError, Actions
from app.api.requests import ContinueRun
from storage.records import Action, Run

HOPELESS: Final = frozenset({"rate_limited", "not_authorized", "forbidden", "token"})
"""Refusals that the next run would meet as well."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one run's turn."""

    run: Run
    action: Action | None
    """None: nothing was even prepared."""
    refusal: ActionRefusedError | None = None
    """Why not."""

    @property
    def ends_all(self) -> bool:
        """Whether nothing more may be sent: the next one would fail too, or nobody knows what happens to them."""
        if self.action is None or self.action.state == "confirmed":
            return False
        if self.action.state == "rejected":
            return self.action.error is not None and self.action.error.kind in HOPELESS
        return True


async def continue_each(
    actions: Actions,
    runs: Sequence[Run],
    request: Callable[[Run], ContinueRun],
    *,
    is_wanted: Callable[[], bool],
) -> AsyncIterator[Sent]:
    """Sends to one run after the other, until one answer says that the rest had better wait.

    Args:
        actions: The one way to write.
        runs: Which runs, in this order.
        request: The turn of a run.
        is_wanted: Whether to go on; asked before each.

    Raises:
        StorageError: The ledger cannot be kept; nothing is sent any more.
    """
    for run in runs:
        if not is_wanted():
            return
        try:
            sent = Sent(run, await actions.submit(request(run)))
        except ActionRefusedError as refused:
            sent = Sent(run, None, refused)
        yield sent
        if sent.ends_all:
            return
