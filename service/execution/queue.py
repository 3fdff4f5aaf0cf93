"""The durable engine: DBOS gives each turn and each errand to one worker, and to another one if that worker dies."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, EnqueueOptions, WorkflowStatus

from service.clock import rfc3339
from service.store.database import Database, DatabaseError

_TURNS: Final = "turns"
_ERRANDS: Final = "errands"
_ERRANDS_AT_ONCE: Final = 4
_APPLICATION: Final = "runwarden"
# Constant: DBOS recovers only workflows of the same version, and those of the service stay compatible.
_APPLICATION_VERSION: Final = "runwarden-1"
_POLL_S: Final = {_TURNS: 0.25, _ERRANDS: 0.5}
_SPARE_CONNECTIONS: Final = 8
"""DBOS's own threads, each of which waits with a connection while the database is away."""
_BATCH: Final = 500
_TURN: Final = "execute_turn"
_ERRAND: Final = "run_errand"
_OPTIONS: Final[dict[str, EnqueueOptions]] = {
    queue: {"queue_name": queue, "workflow_name": name, "app_version": _APPLICATION_VERSION}
    for queue, name in ((_TURNS, _TURN), (_ERRANDS, _ERRAND))
}
_SUBSEC_SINCE: Final = (3, 42)
"""The first version of SQLite that knows `unixepoch('subsec')`."""


class DurableEngine:
    """DBOS as this process uses it; a process has only one."""

    def __init__(self, database: Database, executor: str, concurrency: int) -> None:
        self._database = database
        self._executor = executor
        self._concurrency = concurrency
        self._closing = threading.Event()
        self._begun: list[str] = []
        """The workflows that this process executes now."""
        self._unbegun: set[str] = set()
        """Those that DBOS had given to this process at the last call of `put_back`, and that had not begun."""

    def open(self, turn: Callable[[str, int], None], errands: Mapping[str, Callable[[str], None]]) -> None:
        """Connect and begin to execute; a workflow of a dead worker is called again from its beginning.

        None of the functions may raise: an error would end the workflow for good.
        """
        # DBOS would otherwise advertise its console at every start.
        logging.getLogger("dbos").setLevel(logging.WARNING)
        migrate_queue(self._database)
        self._client = _client(self._database)
        # Before the launch: a queue that is registered later is noticed only after a second.
        for queue, at_once in ((_TURNS, self._concurrency), (_ERRANDS, _ERRANDS_AT_ONCE)):
            self._client.register_queue(queue, worker_concurrency=at_once, polling_interval_sec=_POLL_S[queue])
        DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": self._database.url.render_as_string(hide_password=False),
                # DBOS tries again at ever longer intervals, with a place taken: its calls wait where they connect.
                "db_engine_kwargs": None if self._database.is_sqlite else {"creator": self._connect},
                "sys_db_pool_size": self._concurrency + _SPARE_CONNECTIONS,
                "executor_id": self._executor,
                "application_version": _APPLICATION_VERSION,
                "log_level": "WARNING",
                "enable_otlp": False,
                "use_listen_notify": False,
                # The service uses no notifications, but DBOS waits for this interval when it ends.
                "notification_listener_polling_interval_sec": 0.2,
            }
        )

        @DBOS.workflow(name=_TURN, max_recovery_attempts=None)
        def execute_turn(run_id: str, number: int) -> None:
            with self._at_work():
                turn(run_id, number)

        @DBOS.workflow(name=_ERRAND, max_recovery_attempts=None)
        def run_errand(errand: str, key: str) -> None:
            with self._at_work():
                errands[errand](key)

        DBOS.launch()

    def close(self, wait_s: int, give_up_s: float) -> None:
        """Start nothing new; wait for what is at work, but no longer than `give_up_s`."""
        destroying = threading.Thread(
            target=DBOS.destroy, kwargs={"workflow_completion_timeout_sec": wait_s}, daemon=True
        )
        destroying.start()
        destroying.join(give_up_s)
        self._closing.set()

    def put_turn(self, turn_id: str) -> None:
        """Queue a turn, named by its run's id, a colon and its number; one that is queued stays where it is."""
        run_id, _, number = turn_id.rpartition(":")
        self._client.enqueue(_OPTIONS[_TURNS] | {"workflow_id": turn_id}, run_id, int(number))

    def put_turn_again(self, turn_id: str) -> None:
        """Queue a turn that DBOS does not know, or took for ended."""
        self._client.delete_workflows([turn_id])
        self.put_turn(turn_id)

    def put_errand(self, errand: str, key: str) -> None:
        """Queue an errand, unless the same one waits or is at work."""
        named = f"{errand}:{key}"
        options = _OPTIONS[_ERRANDS] | {"deduplication_id": named, "duplication_policy": "return-existing"}
        self._client.enqueue(options, errand, key)

    def pending(self) -> list[WorkflowStatus]:
        """Return what DBOS has given to any worker and that has not ended."""
        return self._client.list_workflows(status="PENDING", load_input=False, load_output=False)

    def put_back(self, pending: Sequence[WorkflowStatus], living: Collection[str] | None = None) -> None:
        """Put the turns back into the queue that no worker works on, and drop such errands, which are still due.

        They are held for a worker that is not `living` (None: not known; one worker at a time may tell), or were given
        to this process and had not begun at two calls: DBOS loses a workflow if the database goes away just after it
        gave it to a process.
        """
        waiting = {one.workflow_id for one in pending if one.executor_id == self._executor} - set(self._begun)
        lost = [
            one
            for one in pending
            if one.workflow_id in waiting & self._unbegun or (living is not None and one.executor_id not in living)
        ]
        self._unbegun = waiting
        if turns := [one.workflow_id for one in lost if one.queue_name == _TURNS]:
            self._client.resume_workflows(turns, queue_name=_TURNS)
        if errands := [one.workflow_id for one in lost if one.queue_name == _ERRANDS]:
            self._client.cancel_workflows(errands)

    def not_held(self, turns: Collection[str]) -> frozenset[str]:
        """Return those of the turns that are neither in the queue nor with a worker."""
        if not turns:
            return frozenset()
        names: dict[str, Any] = {"workflow_ids": [*turns], "status": ["ENQUEUED", "PENDING"]}
        found = self._client.list_workflows(**names, load_input=False, load_output=False)
        return frozenset(turns) - {one.workflow_id for one in found}

    def _connect(self) -> Any:
        return self._database.connect_patiently(self._closing)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        name = str(DBOS.workflow_id)
        self._begun.append(name)
        try:
            yield
        finally:
            self._begun.remove(name)


def migrate_queue(database: Database) -> None:
    """Create or upgrade the engine's own tables."""
    _mend_sqlite(database)
    DBOS.migrate(database.url.render_as_string(hide_password=False))


def _mend_sqlite(database: Database) -> None:
    """Give an older SQLite `unixepoch('subsec')`, the present to the millisecond, which DBOS uses from Python 3.12 on.

    Without this function the call is NULL, and no row of the queue can be written.
    """
    is_old = database.is_sqlite and database.engine.dialect.dbapi.sqlite_version_info < _SUBSEC_SINCE  # type: ignore[union-attr]  # it is loaded
    if is_old and not sa.event.contains(sa.Engine, "connect", _add_unixepoch):
        # DBOS makes engines of its own, one of them only to migrate.
        sa.event.listen(sa.Engine, "connect", _add_unixepoch)


def _add_unixepoch(connection: Any, _record: object) -> None:
    def unixepoch(modifier: str) -> float:
        if modifier != "subsec":
            raise ValueError(modifier)
        return round(time.time(), 3)

    if hasattr(connection, "create_function"):
        connection.create_function("unixepoch", 1, unixepoch)


def _client(database: Database) -> DBOSClient:
    """Return a client that uses this service's connections, and raises while the database is away."""
    return DBOSClient(
        system_database_engine=database.writing, retry_connection_errors=False, application_name=_APPLICATION
    )


def forget_ended(database: Database, before: int, *, dry_run: bool = False) -> int:
    """Forget, or only count, what ended before an instant (microseconds); return how many entries.

    Raises:
        DatabaseError: The tables are not those of this release.
    """
    if not _has_run(database):
        return 0
    number = 0
    page: dict[str, Any] = {"completed_before": rfc3339(before), "limit": _BATCH}
    page |= {"load_input": False, "load_output": False}
    try:
        client = _client(database)
        while found := client.list_workflows(offset=number if dry_run else 0, **page):
            number += len(found)
            if not dry_run:
                client.delete_workflows([one.workflow_id for one in found])
    except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
        raise DatabaseError(f"the queue cannot be read: {error.orig}; run: runwarden service migrate") from error
    return number


def forget_turns(database: Database, turns: Sequence[str]) -> None:
    """Forget turns, each named by its run's id, a colon and its number."""
    if turns and _has_run(database):
        _client(database).delete_workflows([*turns])


def _has_run(database: Database) -> bool:
    """Whether any worker has ever run: only then the engine has tables."""
    return sa.inspect(database.engine).has_table("workflow_status", schema=None if database.is_sqlite else "dbos")
