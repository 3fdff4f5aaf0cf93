"""The one way to write to the service: prepare, send once, record the outcome."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from app.actions.refusals import (
    AlreadyAskedError,
    BlockedError,
    DuplicateError,
    InvalidRequestError,
    ReadOnlyError,
    problems,
)
from app.api.client import Client
from app.api.errors import ApiError, RefusedError
from app.api.requests import CancelRun, WriteRequest, as_json, request_of
from app.engine.events import ActionChanged, Announce, Event, StorageFailed
from storage.errors import (
    AlreadyDoneError,
    KeyTakenError,
    NoSuchActionError,
    StorageClosedError,
    StorageError,
    SubjectBlockedError,
    WrongStateError,
)
from storage.ledger import Ledger, new_action_id
from storage.records import Action, ActionFailure, Run, RunChanges, RunRow, SettledState
from storage.records.organization import NamedAgent
from storage.values import to_us

log = logging.getLogger(__name__)


POLL_S: Final = 0.075
"""How often the ledger is read while another process sends."""
RETRY_S: Final = 15.0
"""How long writing the ledger is retried; each attempt also waits for other processes."""
PAUSE_S: Final = 0.25
NOT_RECORDED: Final = "not_recorded"
"""The error's kind when the outcome is known and could not be recorded."""
OutcomeT = TypeVar("OutcomeT")


class WriteOutcome(Struct, frozen=True):
    """The known effect of a write."""

    state: SettledState
    """`unknown`: it may have had an effect, if a byte of it left."""
    error: ActionFailure = ActionFailure("", "")
    result_id: str | None = None
    response_json: str | None = None


class SendCancelledError(asyncio.CancelledError):
    """The task that sent a write was cancelled; the write is settled."""

    def __init__(self, action: Action) -> None:
        # Without the action among the arguments: a traceback would show the request.
        super().__init__()
        self.action = action


@dataclass(slots=True)
class Sending:
    """One write, from the moment before its first byte until its outcome is recorded."""

    actions: "Actions"
    action: Action
    """`prepared`, then `sending` once a byte may have left, and finally the recorded outcome."""
    _committing: "asyncio.Task[Action] | None" = None

    async def commit(self) -> None:
        """Commit `sending`. If this raises, no byte leaves; after it returns, bytes may have left."""
        # The commit continues after the deadline: the ledger's content is known only once it is done.
        self._committing = asyncio.create_task(self.actions.ledger.sending(self.action.action_id))
        self._committing.add_done_callback(lambda task: task.cancelled() or task.exception())
        self.action = self.actions.announce_change(await asyncio.shield(self._committing))

    async def record(self, outcome: WriteOutcome) -> Action:
        """Record the outcome. If the ledger cannot take it, the returned action is unknown and says so."""
        was_sent = self.action.state == "sending" and outcome.state != "not_sent"
        state: SettledState = outcome.state if was_sent or outcome.state == "confirmed" else "not_sent"
        error = None if state == "confirmed" else outcome.error
        give_up_s = time.monotonic() + RETRY_S
        while True:
            try:
                self.action = await self.actions.ledger.settle(
                    self.action.action_id, state, error, outcome.result_id, outcome.response_json
                )
            except WrongStateError as overtaken:
                # An earlier attempt was stored after all, or another process took us for dead.
                stored = overtaken.action
                is_given_up = stored.state == "unknown" and stored.resolution is None
                reason = "Another process had marked it as unknown."
                self.action = self._unrecorded_action(outcome, reason, was_sent=was_sent) if is_given_up else stored
            except StorageError as broken:
                if time.monotonic() < give_up_s and not isinstance(broken, StorageClosedError):
                    await asyncio.sleep(PAUSE_S)
                    continue
                reason = f"The ledger could not record it: {broken.message}"
                self.action = self._unrecorded_action(outcome, reason, was_sent=was_sent)
            return self.action

    def _unrecorded_action(self, outcome: WriteOutcome, reason: str, *, was_sent: bool) -> Action:
        """The action as the ledger will show it once this process has exited."""
        task, option = self._committing, "--not-created"
        # Known by now: a later ledger write has finished.
        was_committed = task is not None and task.done() and not task.cancelled() and task.exception() is None
        if outcome.state == "confirmed":
            effect = f"The service confirmed {outcome.result_id}."
            option = f"--created {outcome.result_id}"
        elif was_sent and outcome.state == "rejected":
            effect = f"The service refused: {outcome.error.message}"
        elif was_committed and not was_sent:
            effect = f"Nothing was sent: {outcome.error.message}"
        else:
            return replace(self.action, state="unknown" if was_sent else "not_sent", error=outcome.error)
        resolve = f"{self.actions.command_line} actions resolve {self.action.action_id} {option}"
        message = f"{effect} {reason} Once the ledger can be written: {resolve}"
        return replace(self.action, state="unknown", error=replace(outcome.error, kind=NOT_RECORDED, message=message))


class InFlight(Struct, eq=False):
    """Actions being sent or recorded: no outcome is lost because its caller was cancelled."""

    _sending: set[asyncio.Task[Any]] = field(default_factory=set)
    _settling: set[asyncio.Task[Any]] = field(default_factory=set)

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

    async def finish(self, settling: Coroutine[Any, Any, OutcomeT]) -> OutcomeT:
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
        """Cancel all writes in flight; return once every outcome is recorded."""
        for task in self._sending:
            task.cancel()
        while rest := (self._sending | self._settling) - {asyncio.current_task()}:
            await asyncio.wait(rest)


class Actions(Struct, frozen=True):
    """Sends each write at most once, and records its outcome in the ledger."""

    client: Client
    ledger: Ledger
    store: Callable[[Iterable[Run], Collection[str]], Coroutine[Any, Any, RunChanges]]
    """`RunReader.store`, through which all runs reach the cache."""
    announce: Announce
    clock: Callable[[], datetime]
    actor: str
    read_only: bool = False
    command_line: str = "runwarden"
    """The beginning of a command on the same ledger, for messages."""
    in_flight: InFlight = field(default_factory=InFlight)

    async def agents(self) -> dict[str, NamedAgent]:
        """The named agents that may be started, by name, if the service lists them."""
        return {agent.name: agent for agent in await self.client.agents()}

    async def submit(
        self, request: WriteRequest, key: str | None = None, *, again: bool = False, supersedes: str | None = None
    ) -> Action:
        """Carry out the request; the action's state is the outcome, and no API error is raised.

        A key sends once, in any process; if that is happening right now, this waits for its result. `again`: the user
        wants another organization for the address. `supersedes`: the unknown action that this one sends again.
        Raises `ActionRefusedError` if nothing was sent: read-only, invalid, blocked, done before, or the key was used.
        """
        self.check(request)
        at = self.clock()
        action_id = new_action_id(at)
        entry = Action(
            action_id=action_id,
            kind=request.kind,
            subject=request.subject,
            key=key or action_id,
            path=request.path,
            body_json=as_json(request, action_id),
            actor=self.actor,
            state="prepared",
            created_at=at,
            base_url=self.client.base_url,
        )
        try:
            with _refusing(self.command_line):
                action = await self.ledger.prepare(entry, again=again, supersedes=supersedes)
        except AlreadyAskedError as earlier:
            if not earlier.is_for(request):
                raise
            # Wait until the other process has settled it, or a request's time is over.
            action = earlier.existing
            give_up_s = time.monotonic() + self.client.transport.deadline_s
            while action.state in {"prepared", "sending"} and time.monotonic() < give_up_s:
                await asyncio.sleep(POLL_S)
                await self.adopt_orphans()
                action = await self.ledger.action(action.action_id) or action
            raise AlreadyAskedError(action) from earlier
        if supersedes is not None:
            self._announce(ActionChanged(supersedes))
        return await self._send(request, self.announce_change(action))

    async def rehearse(self, request: WriteRequest, *, key: str | None = None, again: bool = False) -> None:
        """Raise what `submit` would, without waiting for another process; nothing is sent or recorded."""
        self.check(request)
        with _refusing(self.command_line):
            await self.ledger.check(kind=request.kind, subject=request.subject, key=key, again=again)

    async def send_again(self, action_id: str) -> Action:
        """Send an action of unknown outcome once more; the caller has asked the user.

        Raises `NoSuchActionError`, `WrongStateError` if its outcome is not unknown, or `ActionRefusedError` if nothing
        was sent.
        """
        if (old := await self.ledger.action(action_id)) is None:
            raise NoSuchActionError(action_id)
        request = request_of(old)
        self.check(request)
        await self.adopt_orphans()
        return await self.submit(request, again=True, supersedes=old.action_id)

    async def resolve(self, action_id: str, result_id: str | None) -> Action:
        """Record the result of an unknown action, as the user found out, or None if it had no effect."""
        if self.read_only:
            raise ReadOnlyError
        await self.adopt_orphans()
        return self.announce_change(await self.ledger.resolve(action_id, result_id))

    async def undo_resolution(self, action_id: str) -> Action:
        """Undo a mistaken resolution; raises `LedgerRefusedError` if there is none or the action was sent again."""
        if self.read_only:
            raise ReadOnlyError
        await self.adopt_orphans()
        return self.announce_change(await self.ledger.unresolve(action_id))

    async def adopt_orphans(self) -> None:
        """Settle the writes of dead processes."""
        for action in await self.ledger.adopt_orphans():
            self.announce_change(action)

    def check(self, request: WriteRequest) -> None:
        """Raise a `ReadOnlyError` if this process may not send it, an `InvalidRequestError` if it could not succeed."""
        if self.read_only:
            raise ReadOnlyError
        if wrong := problems(request):
            raise InvalidRequestError(wrong)

    async def _send(self, request: WriteRequest, action: Action) -> Action:
        sending = Sending(self, action)
        try:
            with self.in_flight.sending():
                answer = await self.client.send(request, body_json=action.body_json, before_first_byte=sending.commit)
        except ApiError as error:
            code = error.error_code if isinstance(error, RefusedError) else None
            failure = ActionFailure(error.kind, error.message, getattr(error, "status", None), code)
            state: SettledState = "rejected" if isinstance(error, RefusedError) else "not_sent"
            state = "unknown" if error.may_have_been_executed else state
            return await self._record(sending, WriteOutcome(state, failure))
        except StorageError as error:
            # From here to the first byte only the ledger is used.
            return await self._record(sending, WriteOutcome("not_sent", ActionFailure(error.kind, error.message)))
        except asyncio.CancelledError as cancelled:
            failure = ActionFailure("interrupted", "Interrupted before the answer came.")
            raise SendCancelledError(await self._record(sending, WriteOutcome("unknown", failure))) from cancelled
        except Exception as error:
            # A bug in Runwarden: an action that the ledger has as begun may have been carried out.
            log.exception("a write broke")
            failure = ActionFailure("interrupted", f"Interrupted before the answer came ({type(error).__name__}).")
            settled = await self._record(sending, WriteOutcome("unknown", failure))
            if settled.state == "not_sent":
                raise
            return settled
        outcome = WriteOutcome("confirmed", result_id=answer.result_id, response_json=answer.raw_json)
        settled = await self._record(sending, outcome)
        if answer.run is None:
            return settled
        # The ledger is written: any failure to store the run from here on is a warning.
        try:
            cancelled_ids = (answer.run.run_id,) if isinstance(request, CancelRun) else ()
            await self.in_flight.finish(self.store([answer.run], cancelled_ids))
        except asyncio.CancelledError as cancelled:
            raise SendCancelledError(settled) from cancelled
        except StorageError as error:
            self._announce(StorageFailed(f"The run is not in the cache yet: {error}"))
        except Exception as error:
            log.exception("a started run was not stored")
            self._announce(StorageFailed(f"The run is not in the cache yet ({type(error).__name__})."))
        return settled

    async def _record(self, sending: Sending, outcome: WriteOutcome) -> Action:
        try:
            return self.announce_change(await self.in_flight.finish(sending.record(outcome)))
        except asyncio.CancelledError as cancelled:
            # The outcome is recorded anyway.
            raise SendCancelledError(sending.action) from cancelled

    def announce_change(self, action: Action) -> Action:
        self._announce(ActionChanged(action.action_id))
        return action

    def _announce(self, event: Event) -> None:
        try:
            self.announce(event)
        except Exception:
            # A listener's failure must not pass for the write's.
            log.exception("a listener broke")


@contextmanager
def _refusing(command_line: str) -> Iterator[None]:
    try:
        yield
    except SubjectBlockedError as blocked:
        raise BlockedError(blocked.existing, command_line) from blocked
    except AlreadyDoneError as done:
        raise DuplicateError(done.existing) from done
    except KeyTakenError as taken:
        raise AlreadyAskedError(taken.existing) from taken


def retry_key(run: Run | RunRow, words: str = "") -> str:
    """The key under which this failure is retried once with these words, from anywhere (see `Ledger.results`)."""
    ended_us = to_us(run.updated_at) if run.updated_at else 0
    added = ""
    if words.strip():
        added = hashlib.sha256(words.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"retry-{run.run_id}-{ended_us}{added and '-'}{added}"
