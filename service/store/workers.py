"""Workers: the processes that execute turns, their heartbeats, and what keeps them from beginning turns.

In maintenance, and on a drained machine, turns at work finish, and no other begins. The doorbell wakes the workers
when work is accepted; a ring may get lost, since workers also poll.
"""

import contextlib
import hashlib
import select
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from service.clock import SECOND_MICROS, Clock, Micros
from service.store.database import Database, now_in
from service.store.rows import delete, records_of, replace_rows, update
from service.store.schema import meta, workers

_CHANNEL: Final = "runwarden"
_CHECK_S: Final = 20.0
"""How often the connection that listens for PostgreSQL's notifications is checked."""
_MAINTENANCE: Final = "maintenance"
_DRAIN: Final = "drain:"
MISSING: Final = "missing: "
"""Prefix in the `sandbox` of a worker that needs one and has none; the reason and how to install it follow."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that executes turns."""

    executor: str
    """A random name, new for each process: two processes with the same name would execute every turn twice."""
    host: str
    sandbox: str
    pid: int
    concurrency: int
    """The most turns at the same time; 0 while it begins none: no sandbox, a nearly full disk, or `maintenance`."""
    started_at: Micros
    seen_at: Micros
    """The time of its last heartbeat by the database's clock, which all machines share; 0 if it signed off."""
    at_work: int = 0

    @property
    def has_no_sandbox(self) -> bool:
        return self.sandbox.startswith(MISSING)


def beat(connection: sa.Connection, worker: Worker, clock: Clock) -> None:
    values = asdict(worker) | {"seen_at": now_in(connection, clock)}
    # Updated in place, since another process may sign the worker off or read it at the same time.
    if not update(connection, workers, workers.c.executor == worker.executor, **values):
        connection.execute(sa.insert(workers).values(values))


def sign_off(connection: sa.Connection, executor: str) -> None:
    """Sign a worker off: the next one recovers its unfinished turns immediately."""
    update(connection, workers, workers.c.executor == executor, seen_at=0)


def heard_within(connection: sa.Connection, ttl_s: float, clock: Clock) -> list[Worker]:
    """Return the workers with a heartbeat within the last `ttl_s` seconds, oldest first."""
    earliest = now_in(connection, clock) - int(ttl_s * SECOND_MICROS)
    return records_of(connection, Worker, workers, workers.c.seen_at >= earliest, order=[workers.c.started_at])


def all_of(connection: sa.Connection) -> list[Worker]:
    return records_of(connection, Worker, workers, order=[workers.c.started_at])


def forget(connection: sa.Connection, executor: str) -> None:
    delete(connection, workers, executor=executor)


@dataclass(frozen=True, slots=True)
class Pauses:
    """What keeps workers from beginning turns."""

    maintenance: str | None
    """Why no worker begins a turn, for everybody who waits; None: they do."""
    drained: dict[str, int]
    """When each machine was drained, by name: workers that started there earlier begin nothing more."""

    def holds(self, worker: Worker) -> bool:
        return self.maintenance is not None or worker.started_at <= self.drained.get(worker.host, -1)


def pauses(connection: sa.Connection) -> Pauses:
    condition = sa.or_(meta.c.key == _MAINTENANCE, meta.c.key.startswith(_DRAIN))
    rows = {row.key: row.value for row in connection.execute(sa.select(meta.c.key, meta.c.value).where(condition))}
    drained = {key.removeprefix(_DRAIN): int(value) for key, value in rows.items() if key != _MAINTENANCE}
    return Pauses(rows.get(_MAINTENANCE), drained)


def set_maintenance(connection: sa.Connection, reason: str | None) -> None:
    """Begin the maintenance, or replace its reason; None: end it, if there is one."""
    if reason is not None:
        replace_rows(connection, meta, [{"key": _MAINTENANCE, "value": reason}], [meta.c.key])
    else:
        delete(connection, meta, key=_MAINTENANCE)


def drain(connection: sa.Connection, machine: str, living: Sequence[Worker]) -> None:
    """Let a machine's workers begin nothing more; those that start later do."""
    latest = str(max(worker.started_at for worker in living if worker.host == machine))
    replace_rows(connection, meta, [{"key": f"{_DRAIN}{machine}", "value": latest}], [meta.c.key])


class Doorbell:
    """The doorbell of one database: NOTIFY on PostgreSQL, a local datagram for SQLite."""

    def __init__(self, database: Database) -> None:
        self._database = database
        name = hashlib.sha256(bytes(Path(str(database.url.database)).resolve())).hexdigest()
        # An abstract address (Linux only) leaves no file, and disappears with its process.
        self._address = f"\0runwarden-{name[:32]}"

    def ring(self) -> None:
        if self._database.is_sqlite:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
                bell.settimeout(0)
                bell.sendto(b"!", self._address)
            return
        with contextlib.suppress(sa.exc.SQLAlchemyError), self._database.engine.begin() as connection:
            connection.execute(sa.text(f"NOTIFY {_CHANNEL}"))

    def answer(self, wake: Callable[[], None], closing: threading.Event) -> None:
        """Call `wake` at each ring, in a daemon thread."""
        hear = self._hear_datagrams if self._database.is_sqlite else self._hear_notifications

        def listen() -> None:
            while not closing.is_set():
                with contextlib.suppress(OSError, self._database.engine.dialect.loaded_dbapi.Error):
                    hear(wake, closing)
                closing.wait(1.0)

        threading.Thread(target=listen, name="doorbell", daemon=True).start()

    def _hear_datagrams(self, wake: Callable[[], None], closing: threading.Event) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
            bell.bind(self._address)
            while bell.recv(1) and not closing.is_set():
                wake()

    def _hear_notifications(self, wake: Callable[[], None], closing: threading.Event) -> None:
        with contextlib.closing(self._database.connect_patiently(closing)) as connection:
            connection.autocommit = True
            connection.add_notify_handler(lambda _: wake())
            connection.execute(f"LISTEN {_CHANNEL}")
            # Work may have been accepted before the LISTEN.
            wake()
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            while not closing.is_set():
                poll.poll(_CHECK_S * 1000)
                connection.execute("SELECT 1")
