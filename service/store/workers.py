"""Workers: the processes that execute turns, and their heartbeats."""

from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

from service.clock import Clock
from service.store.database import now_in
from service.store.schema import found, workers

MISSING: Final = "missing: "
"""Prefix in the `sandbox` of a worker that needs one and has none; the reason and how to install it follow."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that executes turns."""

    executor: str
    """A random name, new for each process: two processes with the same name would execute every turn twice."""
    host: str
    """The machine it runs on."""
    sandbox: str
    pid: int
    concurrency: int
    """The most turns at the same time; 0 while it begins none: no sandbox, a nearly full disk, or `maintenance`."""
    started_at: int
    seen_at: int
    """The time of its last heartbeat by the database's clock, which all machines share; 0 if it signed off."""
    at_work: int = 0
    """Turns it was executing at that time."""

    @property
    def has_no_sandbox(self) -> bool:
        """Whether it starts no turns because its sandbox is missing."""
        return self.sandbox.startswith(MISSING)


def beat(connection: sa.Connection, worker: Worker, clock: Clock) -> None:
    """Record a worker's heartbeat."""
    values = asdict(worker) | {"seen_at": now_in(connection, clock)}
    changed = connection.execute(sa.update(workers).where(workers.c.executor == worker.executor).values(values))
    if changed.rowcount == 0:
        connection.execute(sa.insert(workers).values(values))


def sign_off(connection: sa.Connection, executor: str) -> None:
    """Sign a worker off: the next one recovers its unfinished turns immediately."""
    connection.execute(sa.update(workers).where(workers.c.executor == executor).values(seen_at=0))


def heard_within(connection: sa.Connection, micros: int, clock: Clock) -> list[Worker]:
    """Return the workers with a heartbeat within the last `micros` microseconds, oldest first."""
    earliest = now_in(connection, clock) - micros
    return found(connection, Worker, workers, workers.c.seen_at >= earliest, order=[workers.c.started_at])


def all_of(connection: sa.Connection) -> list[Worker]:
    """Return all known workers."""
    return found(connection, Worker, workers, order=[workers.c.started_at])


def forget(connection: sa.Connection, executor: str) -> None:
    """Remove a worker."""
    connection.execute(sa.delete(workers).where(workers.c.executor == executor))
