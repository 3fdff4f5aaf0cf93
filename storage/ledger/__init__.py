"""The ledger: every write is here before it is anywhere else."""

from functools import partial
from pathlib import Path
from typing import Self

from storage.database import data_version
from storage.ledger import entries, queries, transitions
from storage.ledger.entries import new_action_id
from storage.ledger.errors import (
    AmbiguousActionError,
    KeyTakenError,
    LedgerRefusedError,
    NoSuchActionError,
    SubjectBlockedError,
    WrongStateError,
)
from storage.ledger.opening import DAMAGE_CURE, connect
from storage.ledger.owner import this_process
from storage.records import Action, ActionError, ActionKind
from storage.thread import DatabaseThread, reads
from storage.values import Clock, utc_now

__all__ = [
    "AmbiguousActionError",
    "KeyTakenError",
    "Ledger",
    "LedgerRefusedError",
    "NoSuchActionError",
    "SubjectBlockedError",
    "WrongStateError",
    "new_action_id",
]


class Ledger:
    """The actions of one profile, in one SQLite file that is on the disk before any call returns.

    Every method may raise `StorageError`, whose message names the file and the cure.
    """

    def __init__(self, thread: DatabaseThread, *, clock: Clock) -> None:
        self.writer = self.reader = thread
        self._clock = clock

    @classmethod
    async def open(cls, path: Path, *, clock: Clock = utc_now) -> Self:
        """The ledger at this path, created or migrated where needed.

        Raises:
            StorageError: It cannot be opened, is damaged (it is never rebuilt), or a newer Runwarden wrote it.
        """
        thread = await DatabaseThread.start(path, partial(connect, path), name="ledger", damage_cure=DAMAGE_CURE)
        return cls(thread, clock=clock)

    async def close(self) -> None:
        """Finish the jobs under way and close; a second call does nothing."""
        await self.writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # the program's transitions

    async def prepare(
        self, *, action_id: str | None, kind: ActionKind, subject: str, key: str, path: str, body_json: str, actor: str
    ) -> Action:
        """Enter an action, owned by this process; nothing of it is sent yet.

        Args:
            action_id: From `new_action_id`; None: a new one.
            kind: Which write it is.
            subject: What must not happen twice by accident; empty where nothing is blocked.
            key: Unique among all actions.
            path: The request's path below the base address.
            body_json: The request's body, exactly as it will be sent.
            actor: Who asked.

        Raises:
            KeyTakenError: An action with the same key exists.
            SubjectBlockedError: An action of the same kind and subject has an open outcome.
        """
        at = self._clock()
        entry = entries.Entry(action_id or new_action_id(at), kind, subject, key, path, body_json, actor)
        return await self.writer.run(lambda connection: entries.prepare(connection, entry, this_process(), at))

    async def sending(self, action_id: str) -> Action:
        """Commit that the first byte is about to leave.

        Raises:
            NoSuchActionError: It is not in the ledger.
            WrongStateError: It is not `prepared`: it was sent or given up.
        """
        return await self._apply(action_id, transitions.SENDING)

    async def confirm(self, action_id: str, *, result_id: str | None, response_json: str | None) -> Action:
        """The service confirmed it; raises as `sending`, from any state but `sending`."""
        outcome = transitions.Outcome(result_id=result_id, response_json=response_json)
        return await self._apply(action_id, transitions.CONFIRM, outcome)

    async def reject(self, action_id: str, error: ActionError) -> Action:
        """The service rejected it, so nothing was done; raises as `sending`, from any state but `sending`."""
        return await self._apply(action_id, transitions.REJECT, transitions.Outcome(error=error))

    async def unknown(self, action_id: str, error: ActionError) -> Action:
        """Whether it was done cannot be known; raises as `sending`, from any state but `sending`."""
        return await self._apply(action_id, transitions.UNKNOWN, transitions.Outcome(error=error))

    async def not_sent(self, action_id: str, error: ActionError) -> Action:
        """No byte of it left; raises as `sending`, from any state but `prepared` and `sending`."""
        return await self._apply(action_id, transitions.NOT_SENT, transitions.Outcome(error=error))

    # a person's transitions

    async def resolve_created(self, action_id: str, result_id: str) -> Action:
        """It was done, and made this; raises as `sending`, from any state but `unknown` and unresolved."""
        return await self._apply(action_id, transitions.RESOLVE_CREATED, transitions.Outcome(result_id=result_id))

    async def resolve_not_created(self, action_id: str) -> Action:
        """It was not done; raises as `sending`, from any state but `unknown` and unresolved."""
        return await self._apply(action_id, transitions.RESOLVE_NOT_CREATED)

    async def supersede(self, action_id: str, by: str) -> Action:
        """A person had it sent again, as the action `by`; its own outcome stays unknown.

        Raises as `sending`, from any state but `unknown` and unresolved.
        """
        return await self._apply(action_id, transitions.SUPERSEDE, transitions.Outcome(superseded_by=by))

    async def adopt_orphans(self) -> tuple[Action, ...]:
        """Settle the actions of processes that died: `prepared` was not sent, `sending` is unknown; those settled."""
        return await self.writer.run(partial(transitions.adopt, at=self._clock()))

    # reading

    action = reads(queries.action)
    actions = reads(queries.actions)
    for_run = reads(queries.for_run)
    run_ids = reads(queries.run_ids)
    organizations = reads(queries.organizations)
    journal = reads(queries.journal)
    data_version = reads(data_version)

    async def _apply(
        self, action_id: str, transition: transitions.Transition, outcome: transitions.Outcome = transitions.NOTHING
    ) -> Action:
        return await self.writer.run(
            partial(transitions.apply, action_id=action_id, transition=transition, outcome=outcome, at=self._clock())
        )
