"""Workers: who executes turns, and who has not been heard of for too long."""

from dataclasses import asdict, dataclass

import sqlalchemy as sa

from service.clock import Clock
from service.store.database import now_in
from service.store.schema import workers


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that executes turns."""

    executor: str
    """A random name, new in each process: two processes of one name would execute everything twice."""
    host: str
    """The machine it runs on."""
    sandbox: str
    pid: int
    concurrency: int
    """Turns it executes at the same time."""
    started_at: int
    seen_at: int
    """By the database's clock, so that machines whose clocks differ agree on who is late; 0: it said good-bye."""


def beat(connection: sa.Connection, worker: Worker, clock: Clock) -> None:
    """Say that a worker lives."""
    values = asdict(worker) | {"seen_at": now_in(connection, clock)}
    changed = connection.execute(sa.update(workers).where(workers.c.executor == worker.executor).values(values))
    if changed.rowcount == 0:
        connection.execute(sa.insert(workers).values(values))


def leave(connection: sa.Connection, executor: str) -> None:
    """Say good-bye: whoever comes next takes over at once what the worker could not end."""
    connection.execute(sa.update(workers).where(workers.c.executor == executor).values(seen_at=0))


def silent_for(connection: sa.Connection, micros: int, clock: Clock) -> list[Worker]:
    """Return the workers that were last heard of longer ago than so many microseconds."""
    latest = now_in(connection, clock) - micros
    return [Worker(*row) for row in connection.execute(sa.select(workers).where(workers.c.seen_at < latest))]


def heard_within(connection: sa.Connection, micros: int, clock: Clock) -> list[Worker]:
    """Return the workers that live, oldest first."""
    earliest = now_in(connection, clock) - micros
    query = sa.select(workers).where(workers.c.seen_at >= earliest).order_by(workers.c.started_at)
    return [Worker(*row) for row in connection.execute(query)]


def all_of(connection: sa.Connection) -> list[Worker]:
    """Return every worker that has not been struck off."""
    return [Worker(*row) for row in connection.execute(sa.select(workers).order_by(workers.c.started_at))]


def forget(connection: sa.Connection, executor: str) -> None:
    """Strike a worker off."""
    connection.execute(sa.delete(workers).where(workers.c.executor == executor))
