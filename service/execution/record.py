"""Recording: everything that a turn at work stores in the database, which may go down at any time."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from service.clock import Clock
from service.store import messages, turn_files, turns
from service.store.database import DATABASE_DOWN, Database
from service.store.messages import Message
from service.store.turn_files import MAX_DIFF, PATCHES, Key
from service.store.turns import Turn

T = TypeVar("T")
P = ParamSpec("P")


class InterruptedTurnError(Exception):
    """The service is stopping; the next worker recovers the turn."""


class SupersededError(Exception):
    """Another attempt took over the turn, or it was cancelled; this one must store and push nothing."""


@dataclass(slots=True, eq=False)
class TurnAtWork:
    """An attempt at a turn in this process, and how much of its log is already in the database."""

    key: Key
    attempt: int
    log_file: Path
    diffs: Mapping[str, Path]
    """The files for the patches of the turn and of the whole run."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """The event that is set once a caller or an operator has cancelled the turn."""
    waiting: Sequence[Message] = ()
    """The messages to the run that have not reached its agent."""
    heard: list[str] = field(default_factory=list)
    """The ids of the messages that have reached the agent."""
    _shared: int = field(init=False)
    """The offset up to which the log is shared; an earlier attempt's part comes before it."""
    _sharing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Start sharing at the present end of the file."""
        self._shared = self.log_file.stat().st_size if self.log_file.exists() else 0

    def unheard(self) -> list[Message]:
        return [message for message in self.waiting if message.timing == "now" and message.id not in self.heard]

    def share(self, database: Database, finish: Callable[[sa.Connection], None] | None = None) -> None:
        """Store the lines added to the log since the last call; not on SQLite, which has only one machine.

        `finish`: more to store in the same transaction.
        """
        with self._sharing:
            added = b""
            if not database.is_sqlite:
                with self.log_file.open("rb") as file:
                    file.seek(self._shared)
                    added = file.read(turn_files.MAX_LOG)
            if added or finish is not None:
                with database.write() as connection:
                    if added:
                        turn_files.append_log(connection, self.key, self.attempt, added)
                    if finish is not None:
                        finish(connection)
            self._shared += len(added)


@dataclass(slots=True, eq=False)
class TurnRecorder:
    """Stores the progress of this process's turns. Each write is repeated while the database is down."""

    database: Database
    clock: Clock
    stopping: threading.Event = field(default_factory=threading.Event)
    """The event of the service's stop: it interrupts the agents at work, and ends all waits for the database."""
    at_work: list[TurnAtWork] = field(default_factory=list)
    """The attempts to watch for cancellation and messages.

    A turn may occur twice: a worker that was taken for dead can be given its own turn again.
    """

    def retry(self, act: Callable[[], T]) -> T:
        """Call, and repeat the call while the database is down.

        Raises:
            InterruptedTurnError: The service stops before the database is back.
        """
        try:
            return self.database.retry(act, self.stopping)
        except DATABASE_DOWN as error:
            raise InterruptedTurnError from error

    def write(self, act: Callable[Concatenate[sa.Connection, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call with a connection that writes in a transaction, which is repeated while the database is down."""
        return self.retry(lambda: self.database.transact(act, *arguments, **named))

    def finish(self, at_work: TurnAtWork) -> None:
        """Stop watching an attempt, and store the rest of its log and its patches; large patches are artifacts."""
        self.at_work.remove(at_work)
        sizes = {kind: file.stat().st_size for kind, file in at_work.diffs.items() if file.exists()}
        large = {name: sizes[kind] for name, kind in PATCHES.items() if sizes.get(kind, 0) > MAX_DIFF}

        def store(connection: sa.Connection) -> None:
            for name, size in large.items():
                turn_files.put_artifact(connection, at_work.key, at_work.attempt, name, size, None)
            if not self.database.is_sqlite:
                turn_files.pack_log(connection, at_work.key)
                for kind in sizes:
                    turn_files.save(connection, at_work.key, at_work.attempt, kind, at_work.diffs[kind].read_bytes())

        if large or not self.database.is_sqlite:
            self.retry(lambda: at_work.share(self.database, store))

    def watch_over(self) -> None:
        """Interrupt work on cancelled turns, notice new messages to the others, and share their logs."""
        at_work = list(self.at_work)
        if not at_work:
            return
        with self.database.read() as connection:
            ended_keys = turns.ended_among(connection, [turn.key for turn in at_work])
            waiting = messages.of_runs(connection, [turn.key[0] for turn in at_work], "waiting")
        for turn in at_work:
            if turn.key in ended_keys:
                turn.stopped.set()
            turn.waiting = [message for message in waiting if (message.run_id, message.number) == turn.key]
            self.note_heard(turn)
            turn.share(self.database)

    def note_heard(self, at_work: TurnAtWork) -> None:
        if heard := [message for message in at_work.waiting if message.id in at_work.heard]:
            with self.database.write() as connection:
                messages.mark(connection, heard, "delivered")

    def write_for(
        self,
        act: Callable[Concatenate[sa.Connection, Turn, P], bool],
        turn: Turn,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> None:
        """Write for an attempt that still has its turn, in a transaction; `act` returns whether it has.

        Raises:
            SupersededError: The attempt no longer has the turn.
        """
        if not self.write(act, turn, *arguments, **named):
            raise SupersededError(f"{turn.run_id} turn {turn.number}: another attempt has it, or it was cancelled")


def stop_reason(waiting: Sequence[Message]) -> str | None:
    message = next((message for message in waiting if message.timing == "stop"), None)
    if message is None:
        return None
    return f"{turns.STOPPED} {message.caller or 'a caller'}"
