"""The one way to write to the service: prepare, send, settle."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from app.actions.refusals import (
    AlreadyAskedError,
    BlockedError,
    DuplicateError,
    InvalidRequestError,
    ReadOnlyError,
    problems,
)
from app.actions.settlement import (
    CommitPoint,
    InFlight,
    SendCancelledError,
    Settlement,
    Verdict,
    verdict_on,
)
from app.api.client import Client
from app.api.errors import ApiError
from app.api.requests import Answer, CreateOrganization, WriteRequest, as_json, request_of
from app.events import ActionChanged, Announce, Event, StorageFailed
from storage.errors import StorageError
from storage.ledger import (
    AlreadyDoneError,
    KeyTakenError,
    Ledger,
    NoSuchActionError,
    SubjectBlockedError,
    new_action_id,
)
from storage.records import Action, ActionError, Run

log = logging.getLogger(__name__)


UNDER_WAY: Final = frozenset({"prepared", "sending"})
LOOK_S: Final = 0.075
"""How often the ledger is read while another process sends."""

StoreRuns = Callable[[Iterable[Run]], Coroutine[Any, Any, object]]
"""`RunSync.store`, through which all runs reach the cache."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Sends each write at most once, and records its outcome in the ledger."""

    client: Client
    ledger: Ledger
    store: StoreRuns
    announce: Announce
    clock: Callable[[], datetime]
    actor: str
    """The author in the ledger."""
    read_only: bool = False
    command_line: str = "runwarden"
    """The beginning of a command on the same ledger, for messages."""
    in_flight: InFlight = field(default_factory=InFlight)

    async def submit(self, request: WriteRequest, *, key: str | None = None, again: bool = False) -> Action:
        """Carry out the request; the action's state tells the outcome, and no API error is raised.

        A key sends once, in any process; if that is happening right now, this waits for its result. `again`: the user
        knows that an organization was created for this address before, and wants another one.

        Raises:
            ActionRefusedError: Nothing was sent: read-only, invalid, blocked by an open action, done before, or the key
                was used.
        """
        self.check(request)
        again = again or not isinstance(request, CreateOrganization)
        return await self._carry_out(request, new_action_id(self.clock()), key=key, again=again)

    async def rehearse(self, request: WriteRequest, *, key: str | None = None, again: bool = False) -> None:
        """Check whether `submit` would send the request; nothing is sent or recorded.

        Raises:
            ActionRefusedError: As `submit`, but without waiting for another process.
        """
        self.check(request)
        again = again or not isinstance(request, CreateOrganization)
        with _refusing(self.command_line):
            await self.ledger.check(kind=request.kind, subject=request.subject, key=key, again=again)

    async def send_again(self, action_id: str) -> Action:
        """Send an action of unknown outcome once more; the caller has asked the user.

        Raises:
            ActionRefusedError: Nothing was sent.
            NoSuchActionError: The ledger does not hold it.
            WrongStateError: The action's outcome is not unknown.
        """
        old = await self._held(action_id)
        request = request_of(old)
        self.check(request)
        await self.adopt_orphans()
        return await self._carry_out(request, new_action_id(self.clock()), supersedes=old.action_id)

    async def resolve_created(self, action_id: str, result_id: str) -> Action:
        """Record the result of an unknown action, as the user found out.

        Raises:
            ReadOnlyError: The ledger is unchanged.
        """
        await self._begin_resolving()
        return self._ring(await self.ledger.resolve_created(action_id, result_id))

    async def resolve_not_created(self, action_id: str) -> Action:
        """Record that an unknown action had no effect, as the user found out.

        Raises:
            ReadOnlyError: The ledger is unchanged.
        """
        await self._begin_resolving()
        return self._ring(await self.ledger.resolve_not_created(action_id))

    async def undo_resolution(self, action_id: str) -> Action:
        """Make the outcome unknown again after a mistaken resolution.

        Raises:
            ReadOnlyError: The ledger is unchanged.
            LedgerRefusedError: It was not resolved, or another action has taken its place.
        """
        await self._begin_resolving()
        return self._ring(await self.ledger.unresolve(action_id))

    async def adopt_orphans(self) -> None:
        """Settle the writes of dead processes."""
        for action in await self.ledger.adopt_orphans():
            self._ring(action)

    async def _begin_resolving(self) -> None:
        self._check_writable()
        await self.adopt_orphans()

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError

    def check(self, request: WriteRequest) -> None:
        """Check that this process may send the request, and that it could succeed.

        Raises:
            ReadOnlyError, InvalidRequestError: It may not, or could not.
        """
        self._check_writable()
        if found := problems(request):
            raise InvalidRequestError(found)

    async def _carry_out(
        self,
        request: WriteRequest,
        action_id: str,
        *,
        key: str | None = None,
        again: bool = True,
        supersedes: str | None = None,
    ) -> Action:
        try:
            with _refusing(self.command_line):
                action = await self.ledger.prepare(
                    action_id=action_id,
                    kind=request.kind,
                    subject=request.subject,
                    key=key or action_id,
                    path=request.path,
                    body_json=as_json(request, action_id),
                    actor=self.actor,
                    base_url=self.client.base_url,
                    again=again,
                    supersedes=supersedes,
                )
        except AlreadyAskedError as asked:
            if (asked.existing.path, asked.existing.body_json) != (
                request.path,
                as_json(request, asked.existing.action_id),
            ):
                raise
            raise AlreadyAskedError(await self._settled(asked.existing)) from asked
        if supersedes is not None:
            self._tell(ActionChanged(supersedes))
        self._ring(action)
        return await self._send(request, action)

    async def _settled(self, action: Action) -> Action:
        """The action once another process has settled it, or its state when a request's time is over."""
        give_up_s = time.monotonic() + self.client.deadline_s
        while action.state in UNDER_WAY and time.monotonic() < give_up_s:
            await asyncio.sleep(LOOK_S)
            await self.adopt_orphans()
            action = await self._held(action.action_id)
        return action

    async def _send(self, request: WriteRequest, action: Action) -> Action:
        commit = CommitPoint(self.ledger, action, self._ring)
        try:
            with self.in_flight.sending():
                answer = await self.client.send(request, body_json=action.body_json, before_first_byte=commit.pass_by)
        except ApiError as error:
            return await self._settle(commit, verdict_on(error))
        except StorageError as error:
            # From here to the first byte only the ledger is used.
            return await self._settle(commit, Verdict("not_sent", ActionError(error.kind, error.message)))
        except asyncio.CancelledError as cancelled:
            reason = ActionError("interrupted", "Interrupted before the answer came.")
            raise SendCancelledError(await self._settle(commit, Verdict("unknown", reason))) from cancelled
        except Exception as error:
            # A mistake of ours: an action that the ledger has as begun may have been carried out.
            log.exception("a write broke")
            reason = ActionError("interrupted", f"Interrupted before the answer came ({type(error).__name__}).")
            settled = await self._settle(commit, Verdict("unknown", reason))
            if settled.state == "not_sent":
                raise
            return settled
        settled = await self._settle(
            commit, Verdict("confirmed", result_id=answer.result_id, response_json=answer.raw_json)
        )
        try:
            await self._keep(answer)
        except asyncio.CancelledError as cancelled:
            raise SendCancelledError(settled) from cancelled
        return settled

    async def _keep(self, answer: Answer) -> None:
        """Store the run in the cache. The ledger is written already: any failure from here on is a warning."""
        if answer.run is None:
            return
        try:
            await self.in_flight.to_its_end(self.store([answer.run]))
        except StorageError as error:
            self._tell(StorageFailed(f"The run is not in the cache yet: {error}"))
        except Exception as error:
            log.exception("a started run was not kept")
            self._tell(StorageFailed(f"The run is not in the cache yet ({type(error).__name__})."))

    async def _settle(self, commit: CommitPoint, verdict: Verdict) -> Action:
        settlement = Settlement(self.ledger, commit, verdict, self.command_line)
        try:
            return self._ring(await self.in_flight.to_its_end(settlement.record()))
        except asyncio.CancelledError as cancelled:
            # The outcome is recorded even so.
            raise SendCancelledError(settlement.settled) from cancelled

    async def _held(self, action_id: str) -> Action:
        action = await self.ledger.action(action_id)
        if action is None:
            raise NoSuchActionError(action_id)
        return action

    def _ring(self, action: Action) -> Action:
        self._tell(ActionChanged(action.action_id))
        return action

    def _tell(self, event: Event) -> None:
        try:
            self.announce(event)
        except Exception:
            # A listener's failure must not pass for the write's.
            log.exception("a listener broke")


@contextmanager
def _refusing(command_line: str) -> Iterator[None]:
    """Translate the ledger's refusals."""
    try:
        yield
    except SubjectBlockedError as blocked:
        raise BlockedError(blocked.existing, command_line) from blocked
    except AlreadyDoneError as done:
        raise DuplicateError(done.existing) from done
    except KeyTakenError as taken:
        raise AlreadyAskedError(taken.existing) from taken
