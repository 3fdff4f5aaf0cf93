"""The ledger: every write is here before it is anywhere else."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from storage.claims import this_process
from storage.database import data_version, open_durable
from storage.errors import DatabaseDamagedError, DatabaseNewerError, DatabaseOlderError, StorageError
from storage.ledger import queries, transitions
from storage.ledger.errors import (
    AlreadyDoneError,
    AmbiguousActionError,
    KeyTakenError,
    LedgerRefusedError,
    NoSuchActionError,
    SubjectBlockedError,
    WrongStateError,
)
from storage.ledger.opening import SCHEMA, connect_to_read
from storage.ledger.transitions import new_action_id
from storage.records import Action, ActionFailure, ActionKind, Author
from storage.thread import DatabaseThread, ThreadedStore, reads
from storage.values import Clock, utc_now

MOVED_CURE: Final = "Put it back, or end Runwarden and start it again: a write in a lost ledger could be sent twice."
NO_AUTHOR: Final = Author()
T = TypeVar("T")


class Ledger(ThreadedStore):
    """The actions of one profile, in one SQLite file that is on disk before any call returns.

    Every method may raise `StorageError`, whose message has the file and the fix.
    """

    def __init__(
        self, thread: DatabaseThread, *, author: Author, clock: Clock, problem: StorageError | None = None
    ) -> None:
        super().__init__(thread, thread, clock)
        self.problem = problem
        """Why it can only be read: it is damaged, or another version of Runwarden wrote it. None: it can be written."""
        self._author = author

    @classmethod
    async def open(cls, path: Path, *, author: Author = NO_AUTHOR, clock: Clock = utc_now) -> Self:
        """Open the ledger, and create it if needed; `author` acts through it.

        A damaged ledger (it is never rebuilt), or one that another version wrote, can still be read: see `problem`.

        Raises:
            StorageError: It cannot be opened, or nothing of it can be read.
        """
        start = partial(DatabaseThread.start, path, name="ledger", damage_cure=SCHEMA.damage_cure)
        try:
            return cls(await start(partial(open_durable, path, SCHEMA)), author=author, clock=clock)
        except (DatabaseDamagedError, DatabaseNewerError, DatabaseOlderError) as problem:
            thread = await start(partial(connect_to_read, path, problem))
            return cls(thread, author=author, clock=clock, problem=problem)

    # The program's transitions

    async def prepare(
        self,
        *,
        action_id: str | None,
        kind: ActionKind,
        subject: str,
        key: str,
        path: str,
        body_json: str,
        actor: str,
        base_url: str | None = None,
        again: bool = True,
        supersedes: str | None = None,
    ) -> Action:
        """Enter an action, owned by this process; nothing of it is sent yet.

        Args:
            action_id: From `new_action_id`; None: a new one.
            kind: Which write it is.
            subject: What must not happen twice by accident; empty where nothing is blocked.
            key: Unique among all actions that may have had an effect.
            path: The request's path below the base address.
            body_json: The request's body, exactly as it will be sent.
            actor: Who asked.
            base_url: Where it goes, without credentials.
            again: Whether it may follow a confirmed action of the same kind and subject.
            supersedes: The unknown action that the user sent again as this one; open again if this one had no effect.

        Raises:
            WrongStateError: The superseded action is not unknown, or was resolved.
            KeyTakenError: An action with the same key may have had an effect.
            SubjectBlockedError: An action of the same kind and subject has an open outcome.
            AlreadyDoneError: An action of the same kind and subject was confirmed, and this one may not follow it.
            DatabaseUnopenableError: The file was moved or deleted under this process.
        """
        at = self.clock()
        new = action_id or new_action_id(at)
        texts = (subject, key, path, body_json, actor)
        entry = Action(new, kind, *texts, "prepared", at, base_url=base_url, author=self._author)

        def enter(connection: sqlite3.Connection) -> Action:
            transitions.adopt(connection, self._author, at)  # The writes of a dead process must not block.
            return transitions.enter(connection, entry, this_process(), supersedes, again=again)

        self.writer.check_place(MOVED_CURE)
        return await self._write(enter)

    async def sending(self, action_id: str) -> Action:
        """Commit that the first byte is about to leave.

        Raises:
            NoSuchActionError: It is not in the ledger.
            WrongStateError: It is not `prepared`: it was sent or given up.
        """
        return await self._apply(action_id, transitions.SENDING)

    async def confirm(self, action_id: str, *, result_id: str | None, response_json: str | None) -> Action:
        """Record that the service confirmed it; raises as `sending`, from any state but `sending`."""
        outcome = transitions.TransitionOutcome(result_id=result_id, response_json=response_json)
        return await self._apply(action_id, transitions.CONFIRM, outcome)

    async def reject(self, action_id: str, error: ActionFailure) -> Action:
        """Record that it was rejected and nothing was done; raises as `sending`, from any state but `sending`."""
        return await self._apply(action_id, transitions.REJECT, transitions.TransitionOutcome(error=error))

    async def unknown(self, action_id: str, error: ActionFailure) -> Action:
        """Record that its outcome is unknown; raises as `sending`, from any state but `sending`."""
        return await self._apply(action_id, transitions.UNKNOWN, transitions.TransitionOutcome(error=error))

    async def not_sent(self, action_id: str, error: ActionFailure) -> Action:
        """Record that no byte of it left; raises as `sending`, from any state but `prepared` and `sending`."""
        return await self._apply(action_id, transitions.NOT_SENT, transitions.TransitionOutcome(error=error))

    # The user's transitions

    async def resolve_created(self, action_id: str, result_id: str) -> Action:
        """Record that it was done, with its result; raises as `sending`, unless it is `unknown` and unresolved."""
        return await self._apply(
            action_id, transitions.RESOLVE_CREATED, transitions.TransitionOutcome(result_id=result_id)
        )

    async def resolve_not_created(self, action_id: str) -> Action:
        """Record that it was not done; raises as `sending`, unless it is `unknown` and unresolved."""
        return await self._apply(action_id, transitions.RESOLVE_NOT_CREATED)

    async def unresolve(self, action_id: str) -> Action:
        """Undo a resolution: the outcome is unknown again.

        Raises:
            NoSuchActionError: It is not in the ledger.
            WrongStateError: It was not resolved as created or as not created.
            SubjectBlockedError: Another action on its subject has an open outcome.
            KeyTakenError: Another action was sent under its key.
        """
        return await self._apply(action_id, transitions.UNRESOLVE)

    async def adopt_orphans(self) -> tuple[Action, ...]:
        """Settle and return the actions of dead processes: `prepared` was not sent, `sending` is unknown."""
        if self.problem is not None:
            return ()
        return await self._write(partial(transitions.adopt, author=self._author, at=self.clock()))

    # Reading

    check = reads(transitions.check)
    action = reads(queries.action)
    actions = reads(queries.actions)
    unresolved = reads(queries.unresolved)
    state_counts = reads(queries.state_counts)
    for_run = reads(queries.for_run)
    last_turn = reads(queries.last_turn)
    run_ids = reads(queries.run_ids)
    agents = reads(queries.agents)
    organizations = reads(queries.organizations)
    journal = reads(queries.journal)
    unknown_spans = reads(queries.unknown_spans)
    audit = reads(queries.steps)
    data_version = reads(data_version)

    async def _apply(
        self,
        action_id: str,
        transition: transitions.Transition,
        outcome: transitions.TransitionOutcome = transitions.NOTHING,
    ) -> Action:
        step = transitions.StateChange(transition, self._author, self.clock(), outcome)
        return await self._write(partial(transitions.apply, action_id=action_id, step=step))

    async def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        if self.problem is not None:
            raise self.problem
        return await self.writer.run(job)
