"""Recording a write's outcome: retried for a while, reported truthfully, and not lost when its caller is cancelled."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from app.api.errors import ApiError, RefusedError
from storage.errors import StorageClosedError, StorageError
from storage.ledger import Ledger, WrongStateError
from storage.records import Action, ActionError

RETRY_S: Final = 15.0
"""How long writing the ledger is retried; each attempt also waits for other processes."""
PAUSE_S: Final = 0.25
NOT_RECORDED: Final = "not_recorded"
"""The error's kind when the outcome is known and could not be recorded."""


NO_ERROR: Final = ActionError("", "")
OutcomeT = TypeVar("OutcomeT")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a write's effect."""

    state: Literal["confirmed", "rejected", "unknown", "not_sent"]
    """`unknown`: it may have had an effect, if a byte of it left."""
    error: ActionError = NO_ERROR
    """Why it is not confirmed."""
    result_id: str = ""
    response_json: str = ""


def verdict_on(error: ApiError) -> Verdict:
    """The effect of a write that failed with this API error."""
    code = error.error_code if isinstance(error, RefusedError) else None
    reason = ActionError(error.kind, error.message, getattr(error, "status", None), code)
    if error.may_have_been_executed:
        return Verdict("unknown", reason)
    return Verdict("rejected" if isinstance(error, RefusedError) else "not_sent", reason)


class SendCancelledError(asyncio.CancelledError):
    """The task that sent a write was cancelled; the write is settled."""

    def __init__(self, action: Action) -> None:
        super().__init__()
        self.action = action


@dataclass(slots=True)
class CommitPoint:
    """The moment before a write's first byte."""

    ledger: Ledger
    action: Action
    """`sending` as soon as a byte may have left; before that `prepared`."""
    ring: Callable[[Action], Action]
    _committing: "asyncio.Task[Action] | None" = None

    async def pass_by(self) -> None:
        """Commit `sending`. If this raises, no byte leaves; after it returns, bytes may have left."""
        # If the deadline ends the wait, the commit continues: only its end shows what the ledger has.
        self._committing = asyncio.create_task(self.ledger.sending(self.action.action_id))
        self._committing.add_done_callback(lambda task: task.cancelled() or task.exception())
        self.action = self.ring(await asyncio.shield(self._committing))

    @property
    def was_committed(self) -> bool:
        """Whether the ledger has it as `sending`; certain once a later write to the ledger has ended."""
        task = self._committing
        return task is not None and task.done() and not task.cancelled() and task.exception() is None


@dataclass(slots=True)
class Settlement:
    """One action's verdict on its way into the ledger."""

    ledger: Ledger
    commit: CommitPoint
    verdict: Verdict
    command_line: str
    """The beginning of a command on the same ledger."""
    settled: Action = field(init=False)
    """The action as recorded last; before `record`, as it was committed."""

    def __post_init__(self) -> None:
        """Begin with the action as it is."""
        self.settled = self.commit.action

    async def record(self) -> Action:
        """Record the verdict. If the ledger cannot take it, the returned action is unknown and says so."""
        give_up_s = time.monotonic() + RETRY_S
        while True:
            try:
                self.settled = await self._write()
            except WrongStateError as overtaken:
                # An earlier attempt was stored after all, or another process took us for dead.
                self.settled = overtaken.action
                if overtaken.action.state == "unknown" and overtaken.action.resolution is None:
                    self.settled = self._unrecorded("Another process had given it up.")
            except StorageError as error:
                if time.monotonic() < give_up_s and not isinstance(error, StorageClosedError):
                    await asyncio.sleep(PAUSE_S)
                    continue
                self.settled = self._unrecorded(f"The ledger could not record it: {error.message}")
            return self.settled

    @property
    def _was_sent(self) -> bool:
        """Whether a byte of it may have left."""
        return self.commit.action.state == "sending" and self.verdict.state != "not_sent"

    async def _write(self) -> Action:
        ledger, action_id, verdict = self.ledger, self.commit.action.action_id, self.verdict
        if verdict.state == "confirmed":
            return await ledger.confirm(action_id, result_id=verdict.result_id, response_json=verdict.response_json)
        if not self._was_sent:
            return await ledger.not_sent(action_id, verdict.error)
        if verdict.state == "rejected":
            return await ledger.reject(action_id, verdict.error)
        return await ledger.unknown(action_id, verdict.error)

    def _unrecorded(self, why: str) -> Action:
        """The action as the ledger will have it after this process ended."""
        action, verdict = self.commit.action, self.verdict
        if verdict.state == "confirmed":
            return self._unknown(f"The service confirmed {verdict.result_id}. {why}", f"--created {verdict.result_id}")
        if not self._was_sent and not self.commit.was_committed:
            return replace(action, state="not_sent", error=verdict.error)
        if not self._was_sent:
            return self._unknown(f"Nothing was sent: {verdict.error.message} {why}", "--not-created")
        if verdict.state == "rejected":
            return self._unknown(f"The service refused: {verdict.error.message} {why}", "--not-created")
        return replace(action, state="unknown", error=verdict.error)

    def _unknown(self, outcome: str, word: str) -> Action:
        cure = f"Once it can: {self.command_line} actions resolve {self.commit.action.action_id} {word}"
        error = replace(self.verdict.error, kind=NOT_RECORDED, message=f"{outcome} {cure}")
        return replace(self.commit.action, state="unknown", error=error)


class InFlight:
    """Actions being sent or recorded: no outcome is lost because its caller was cancelled."""

    def __init__(self) -> None:
        self._sending: set[asyncio.Task[Any]] = set()
        self._settling: set[asyncio.Task[Any]] = set()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Mark the current task as sending: `close` cancels it."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError
        self._sending.add(task)
        try:
            yield
        finally:
            self._sending.discard(task)

    async def to_its_end(self, settling: Coroutine[Any, Any, OutcomeT]) -> OutcomeT:
        """Finish the work even if the waiting task is cancelled; that task is cancelled afterwards."""
        task = asyncio.create_task(settling)
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                log.warning("%s", failure)
            raise

    async def close(self) -> None:
        """Cancel what is being sent; return once every outcome is recorded."""
        for task in self._sending:
            task.cancel()
        while rest := (self._sending | self._settling) - {asyncio.current_task()}:
            await asyncio.wait(rest)
