"""One thread with one connection: order, cancellation, and errors."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from storage.database import connect, immediate, snapshot
from storage.errors import StorageClosedError
from storage.thread import DatabaseThread


@pytest.fixture
async def thread(tmp_path: Path) -> AsyncIterator[DatabaseThread]:
    path = tmp_path / "x.sqlite3"
    opened = await DatabaseThread(path, "x", "", interruptible=True).start(partial(connect, path, {}))
    await opened.run(lambda c: c.execute("CREATE TABLE t (n INTEGER)"))
    yield opened
    await opened.close()


def numbers(connection: sqlite3.Connection) -> list[int]:
    return [n for (n,) in connection.execute("SELECT n FROM t ORDER BY n").fetchall()]


async def test_cancelling_a_waiting_job_keeps_it_from_starting(tmp_path: Path, thread: DatabaseThread) -> None:
    """If it is running, its transaction is completed."""
    started, proceed = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        with immediate(connection):
            connection.execute("INSERT INTO t VALUES (1)")
            started.set()
            proceed.wait()
            connection.execute("INSERT INTO t VALUES (2)")

    path = tmp_path / "x.sqlite3"
    writer = await DatabaseThread(path, "w", "").start(partial(connect, path, {}))
    running = asyncio.ensure_future(writer.run(slow))
    await asyncio.to_thread(started.wait)
    waiting = asyncio.ensure_future(writer.run(lambda c: c.execute("INSERT INTO t VALUES (3)")))
    await asyncio.sleep(0)
    waiting.cancel()
    running.cancel()
    for task in (running, waiting):
        with pytest.raises(asyncio.CancelledError):
            await task
    proceed.set()

    assert await writer.run(numbers) == [1, 2]
    await writer.close()


async def test_a_failing_transaction_is_rolled_back(thread: DatabaseThread) -> None:
    """The next job finds a usable connection. A mistake in SQL is a bug, not a disk problem."""

    def failing(connection: sqlite3.Connection) -> None:
        with immediate(connection):
            connection.execute("INSERT INTO t VALUES (1)")
            raise KeyError("no")

    with pytest.raises(KeyError):
        await thread.run(failing)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await thread.run(lambda c: c.execute("SELECT * FROM nowhere"))

    assert await thread.run(numbers) == []


async def test_cancelling_a_reader_stops_its_own_statement_only(thread: DatabaseThread) -> None:
    """A cancelled search stops, without affecting the next or another running one."""
    counting, proceed = threading.Event(), threading.Event()

    def tick(number: int) -> int:
        counting.set()
        proceed.wait()
        return number

    def count(connection: sqlite3.Connection, end: str = "WHERE i < 5000") -> int:
        connection.create_function("tick", 1, tick)
        found = connection.execute(
            f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n {end}) SELECT max(tick(i)) FROM n"
        )
        return int(found.fetchone()[0])

    running = asyncio.ensure_future(thread.run(count))
    await asyncio.to_thread(counting.wait)
    waiting = asyncio.ensure_future(thread.run(numbers))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    proceed.set()
    assert await running == 5000

    counting.clear()
    endless = asyncio.ensure_future(thread.run(lambda connection: count(connection, "")))
    await asyncio.to_thread(counting.wait)
    endless.cancel()
    assert await thread.run(numbers) == []
    assert endless.cancelled()


async def test_closing_lets_waiting_jobs_run(thread: DatabaseThread) -> None:
    """The jobs run in order on one thread; jobs after closing are refused."""
    seen: list[tuple[int, str]] = []
    jobs = [thread.run(lambda _, n=n: seen.append((n, threading.current_thread().name))) for n in range(20)]
    waiting = asyncio.gather(*jobs)
    await asyncio.sleep(0)
    await thread.close()
    await waiting

    assert seen == [(n, "x") for n in range(20)]
    with pytest.raises(StorageClosedError):
        await thread.run(numbers)


@pytest.mark.parametrize("raises_another", [False, True])
async def test_a_cancelled_job_leaves_no_transaction(
    tmp_path: Path, thread: DatabaseThread, *, raises_another: bool
) -> None:
    """An open cursor would interrupt the next job too, and an open transaction would show it an old state."""
    began = threading.Event()

    def endless(connection: sqlite3.Connection) -> None:
        with snapshot(connection):
            try:
                reading(connection)
            except sqlite3.OperationalError:
                if raises_another:
                    raise KeyError("found nothing")  # noqa: B904 — a mistake in a handler has no cause either
                raise

    def reading(connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT n FROM t UNION ALL SELECT 1 UNION ALL SELECT 2")
        rows.fetchone()
        began.set()
        connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")

    first = asyncio.create_task(thread.run(endless))
    await asyncio.to_thread(began.wait)
    following = asyncio.create_task(thread.run(lambda connection: connection.execute("SELECT 3").fetchone()[0]))
    await asyncio.sleep(0)
    first.cancel()

    assert await following == 3
    with closing(connect(tmp_path / "x.sqlite3", {})) as other:
        other.execute("INSERT INTO t VALUES (4)")
    assert await thread.run(numbers) == [4]
