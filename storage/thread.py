"""One thread owns one connection: SQLite never runs on the event loop or in two places at once."""

import asyncio
import sqlite3
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from storage.database import column, data_version, immediate
from storage.errors import DatabaseUnopenableError, StorageClosedError, StorageError, translate_errors
from storage.private_file import file_identity
from storage.values import Clock

P = ParamSpec("P")
T = TypeVar("T")
_Job = tuple[asyncio.Future[Any], Callable[[], Any]]


@dataclass(eq=False)
class DatabaseThread:
    """Runs jobs on its connection, one after the other, in the order they came.

    A job is one function from start to end; cancelling the task that awaits it either keeps it from starting or lets it
    finish, so that a transaction is never left half done. The thread settles the futures of one event loop: a job costs
    a third of what it costs in a pool.
    """

    path: Path
    """The database, for messages."""
    name: str
    damage_fix: str
    moved_fix: str = ""
    interruptible: bool = False
    """Cancelling an awaiting task stops its running statement: for readers only."""
    on_damage: Callable[[], None] | None = None
    """Called on the thread when a job finds damage."""
    _jobs: SimpleQueue[_Job | None] = field(default_factory=SimpleQueue, init=False)
    _is_ended: bool = field(default=False, init=False)
    _connection: sqlite3.Connection | None = field(default=None, init=False)
    _identity: tuple[int, int] | None = field(default=None, init=False)
    _guard: Lock = field(default_factory=Lock, init=False)
    _running: object | None = field(default=None, init=False)

    async def start(self, connect: Callable[[], sqlite3.Connection]) -> Self:
        Thread(target=self._run_jobs, name=self.name, daemon=True).start()
        try:
            await self.reopen(connect)
        except BaseException:
            await self.close()
            raise
        return self

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        ticket = object()
        try:
            return await self.submit(lambda: self._work(ticket, job))
        except asyncio.CancelledError:
            # The guard ensures that this job still runs, so that the next one's statement is not interrupted.
            with self._guard:
                if self.interruptible and self._running is ticket and self._connection is not None:
                    self._connection.interrupt()
            raise

    async def close(self) -> None:
        """Run the waiting jobs, then close the connection and end the thread; a second call does nothing."""
        if self._is_ended:
            return
        try:
            await asyncio.shield(self.submit(self._close))
        finally:
            self._is_ended = True
            self._jobs.put(None)

    async def reopen(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Close the connection once the waiting jobs ran, and open another one; until that is open, jobs fail."""
        await self.submit(lambda: self._open(connect))

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        if self._is_ended:
            raise StorageClosedError(f"{self.path} was closed. Open it again.", path=self.path)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, call))
        return future

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if not future.cancelled():
                try:
                    settle = partial(_settle, future, future.set_result, call())
                except BaseException as error:  # noqa: BLE001 — the awaiting caller gets and handles it
                    settle = partial(_settle, future, future.set_exception, error)
                with suppress(RuntimeError):  # The event loop is closed, and nobody awaits the job.
                    future.get_loop().call_soon_threadsafe(settle)
                del settle
            del job, future, call  # Otherwise the result would be kept until the next job.

    def check_place(self) -> None:
        """Raise a `DatabaseUnopenableError` if the file is not at the path that other processes use."""
        if self.has_moved:
            raise DatabaseUnopenableError(f"{self.path} was moved or deleted. {self.moved_fix}", path=self.path)

    @property
    def has_moved(self) -> bool:
        """Whether the file was moved or deleted, or replaced by another one, since it was opened."""
        return file_identity(self.path) != self._identity

    def _open(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._close()
        with translate_errors(self.path, self.damage_fix, self.on_damage):
            self._connection = connect()
        self._identity = file_identity(self.path)

    def _work(self, ticket: object, job: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise StorageClosedError(f"{self.path} was closed. Open it again.", path=self.path)
        with self._guard:
            self._running = ticket
        try:
            with translate_errors(self.path, self.damage_fix, self.on_damage):
                return job(connection)
        except Exception as error:
            # Its frames hold cursors. While one of an interrupted statement is open, the next job is interrupted, too.
            cause: BaseException | None = error
            while cause is not None:
                traceback.clear_frames(cause.__traceback__)
                cause = cause.__cause__ or cause.__context__
            # While a cursor was open, the end of the transaction was interrupted as well.
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
        finally:
            with self._guard:
                self._running = None

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


@dataclass(eq=False)
class ThreadedStore:
    """A database with a writer thread and a reader thread, which may be the same."""

    writer: DatabaseThread
    reader: DatabaseThread
    clock: Clock
    problem: StorageError | None = None
    """Why it can only be read. None: it can be written."""

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run the job on the writer, in one transaction."""
        if self.problem is not None:
            raise self.problem

        def transaction(connection: sqlite3.Connection) -> T:
            with immediate(connection):
                return job(connection)

        return await self.writer.run(transaction)

    async def data_version(self) -> int:
        """A number that changes when another process writes; our own writes do not change it."""
        # Asks the writer's connection: a separate reader's would also count our own writes.
        return await self.writer.run(data_version)

    async def close(self) -> None:
        """Finish the jobs under way and close; a second call does nothing."""
        try:
            await self.reader.close()
        finally:
            await self.writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], result: object) -> None:
    if not future.done():
        settle(result)


_Query = Callable[Concatenate[sqlite3.Connection, P], T]
_Method = Callable[Concatenate[ThreadedStore, P], Coroutine[Any, Any, T]]


def writes(query: _Query[P, T]) -> _Method[P, T]:
    """A method that runs the query on the database's writer, in one transaction."""

    async def method(database: ThreadedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await database.write(lambda connection: query(connection, *args, **kwargs))

    return method


def writes_now(
    query: Callable[Concatenate[sqlite3.Connection, datetime, P], T], *, checks_place: bool = False
) -> _Method[P, T]:
    """The same as `writes`; the query also gets the time, which is read once no other process can write."""

    async def method(database: ThreadedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if checks_place:
            database.writer.check_place()
        return await database.write(lambda connection: query(connection, database.clock(), *args, **kwargs))

    return method


def reads(query: _Query[P, T]) -> _Method[P, T]:
    """A method that runs the query on the database's reader."""

    async def method(database: ThreadedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await database.reader.run(lambda connection: query(connection, *args, **kwargs))

    return method


def reads_texts(sql: str) -> _Method[[], tuple[str, ...]]:
    """A method that reads the texts in the only column of a statement."""
    return reads(lambda connection: tuple(column(connection, sql)))


def reads_counts(sql: str) -> _Method[[], dict[tuple[str, ...], int]]:
    """A method that reads the numbers in the last column of a statement, by the columns before it."""
    return reads(lambda connection: {tuple(of): count for *of, count in connection.execute(sql).fetchall()})
