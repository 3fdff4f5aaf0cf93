"""Workers: who executes turns, and who has not been heard of for too long."""

from dataclasses import dataclass

import sqlalchemy as sa

from service.store.schema import workers


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that executes turns."""

    executor: str
    """A random name, new in each process: two processes of one name would execute everything twice."""
    sandbox: str
    pid: int
    started_at: int
    seen_at: int


def beat(connection: sa.Connection, worker: Worker) -> None:
    """Say that a worker lives."""
    values = {field: getattr(worker, field) for field in Worker.__slots__}
    changed = connection.execute(sa.update(workers).where(workers.c.executor == worker.executor).values(values))
    if changed.rowcount == 0:
        connection.execute(sa.insert(workers).values(values))


def silent_since(connection: sa.Connection, before: int) -> list[Worker]:
    """Return the workers that were last heard of before an instant (microseconds)."""
    rows = connection.execute(sa.select(workers).where(workers.c.seen_at < before))
    return [Worker(*row) for row in rows]


def all_of(connection: sa.Connection) -> list[Worker]:
    """Return every worker that has not been struck off."""
    return [Worker(*row) for row in connection.execute(sa.select(workers).order_by(workers.c.started_at))]


def forget(connection: sa.Connection, executor: str) -> None:
    """Strike a worker off."""
    connection.execute(sa.delete(workers).where(workers.c.executor == executor))
