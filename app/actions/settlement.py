"""Recording what became of a write: tried for a while, and reported truthfully where the ledger cannot take it."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Final

from app.api.errors import ApiError, RefusedError
from storage.errors import StorageClosedError, StorageError
from storage.ledger import Ledger, WrongStateError
from storage.records import Action, ActionError

RETRY_S: Final = 15.0
"""How long a ledger that cannot be written is tried again; each try waits for other processes by itself."""
PAUSE_S: Final = 0.25
NOT_RECORDED: Final = "not_recorded"
"""The error's kind where the outcome is known and the ledger could not record it."""


@dataclass(frozen=True, slots=True)
class Done:
    """The service confirmed it."""

    result_id: str
    response_json: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The service refused it: it had no effect."""

    error: ActionError


@dataclass(frozen=True, slots=True)
class Doubtful:
    """It may have had an effect, if a byte of it left."""

    error: ActionError


@dataclass(frozen=True, slots=True)
class NotDone:
    """No byte of it left."""

    error: ActionError


Verdict = Done | Refused | Doubtful | NotDone


def verdict_on(error: ApiError) -> Verdict:
    """What an API error says of a write's effect."""
    code = error.error_code if isinstance(error, RefusedError) else None
    reason = ActionError(error.kind, error.message, getattr(error, "status", None), code)
    if error.may_have_been_executed:
        return Doubtful(reason)
    return Refused(reason) if isinstance(error, RefusedError) else NotDone(reason)


class SendCancelledError(asyncio.CancelledError):
    """The task that sent a write was cancelled; the write is settled."""

    def __init__(self, action: Action) -> None:
        super().__init__()
        self.action = action


@dataclass(slots=True)
class Settlement:
    """One action's verdict on its way into the ledger."""

    ledger: Ledger
    action: Action
    """`prepared` or `sending`; `sending` as soon as a byte may have left."""
    verdict: Verdict
    settled: Action = field(init=False)
    """The action as it stands; what `record` returned, once it has."""

    def __post_init__(self) -> None:
        """Begin with the action as it is."""
        self.settled = self.action

    async def record(self) -> Action:
        """Record the verdict. Where the ledger cannot take it, the action says so: its outcome stands as unknown."""
        give_up_s = time.monotonic() + RETRY_S
        while True:
            try:
                self.settled = await self._write()
            except WrongStateError as overtaken:
                # An earlier try was kept after all, or another process took us for dead.
                self.settled = overtaken.action
                if overtaken.action.state == "unknown" and overtaken.action.resolution is None:
                    self.settled = self._unrecorded("Another process had given it up.")
            except StorageError as error:
                if time.monotonic() < give_up_s and not isinstance(error, StorageClosedError):
                    await asyncio.sleep(PAUSE_S)
                    continue
                self.settled = self._unrecorded(f"The ledger could not record it: {error.message}")
            return self.settled

    async def _write(self) -> Action:
        ledger, action_id, verdict = self.ledger, self.action.action_id, self.verdict
        if isinstance(verdict, Done):
            return await ledger.confirm(action_id, result_id=verdict.result_id, response_json=verdict.response_json)
        if self.action.state == "prepared" or isinstance(verdict, NotDone):
            return await ledger.not_sent(action_id, verdict.error)
        if isinstance(verdict, Refused):
            return await ledger.reject(action_id, verdict.error)
        return await ledger.unknown(action_id, verdict.error)

    def _unrecorded(self, why: str) -> Action:
        """The action as the ledger will have it once this process has ended."""
        if isinstance(self.verdict, Done):
            cure = f"Once it can: runwarden actions resolve {self.action.action_id} --created {self.verdict.result_id}"
            error = ActionError(NOT_RECORDED, f"The service confirmed {self.verdict.result_id}. {why} {cure}")
        elif self.action.state == "prepared" or isinstance(self.verdict, NotDone):
            return replace(self.action, state="not_sent", sending_at=None, error=self.verdict.error)
        elif isinstance(self.verdict, Refused):
            cure = f"Once it can: runwarden actions resolve {self.action.action_id} --not-created"
            said = self.verdict.error
            error = replace(said, kind=NOT_RECORDED, message=f"The service refused: {said.message} {why} {cure}")
        else:
            error = self.verdict.error
        return replace(self.action, state="unknown", error=error)
