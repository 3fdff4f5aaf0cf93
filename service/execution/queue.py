"""The queue: DBOS gives each accepted turn to one worker, one turn of a branch at a time, and records its steps."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import sqlalchemy as sa

from service.clock import rfc3339
from service.store.database import Database, DatabaseError
from service.store.dispatch import WaitingTurn

if TYPE_CHECKING:
    from dbos import DBOS, DBOSClient, Queue, StepOptions


QUEUE: Final = "turns"
WORKFLOW: Final = "execute_turn"
"""A turn's name in the queue's tables."""
_APPLICATION: Final = "runwarden"
# Constant: DBOS recovers only workflows of the same version, and those of the service stay compatible.
APPLICATION_VERSION: Final = "runwarden-1"
_QUICK_S: Final = 0.2
_SLOW_S: Final = 2.0
_QUICK_FOR_S: Final = 30.0
_NEVER_S: Final = 3600.0
_SPARE_CONNECTIONS: Final = 3
_BROKEN: Final = frozenset({"ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})
_TAKEN: Final = "PENDING"
_WAITING: Final = "ENQUEUED"
_OPEN: Final = frozenset({_TAKEN, _WAITING, "DELAYED"})
_SETTLE: Final["StepOptions"] = {
    "name": "settle",
    "retries_allowed": True,
    "max_attempts": 8,
    "interval_seconds": 1.0,
    "backoff_rate": 2.0,
}
"""Settling only writes to the database; while that is unavailable, it is retried for about two minutes."""

Perform = Callable[[str, int], dict[str, object] | None]
Settle = Callable[[str, int, dict[str, object]], None]
_SUBSEC_SINCE: Final = (3, 42)
"""The first version of SQLite that knows `unixepoch('subsec')`."""
_TABLE: Final = "workflow_status"
_SCHEMA: Final = "dbos"


class TurnQueue:
    """The queue as this process uses it; DBOS allows one in a process."""

    def __init__(self, database: Database, executor: str, concurrency: int) -> None:
        self._database = database
        self._executor = executor
        self._concurrency = concurrency
        self._queue: Queue | None = None
        self._execute: Callable[[str, int], None] | None = None
        self._interval_s = _QUICK_S
        self._busy_at = time.monotonic()

    def open(self, perform: Perform, settle: Settle) -> None:
        """Connect and begin to execute: `perform`, then `settle` with what that returned, unless it returned None."""
        from dbos import DBOS

        # DBOS would otherwise advertise its console at every start.
        logging.getLogger("dbos").setLevel(logging.WARNING)
        _make_queue(self._database, self._concurrency)
        engine = DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": self._database.url.render_as_string(hide_password=False),
                "sys_db_pool_size": self._concurrency + _SPARE_CONNECTIONS,
                "executor_id": self._executor,
                "application_version": APPLICATION_VERSION,
                "log_level": "WARNING",
                "enable_otlp": False,
                "use_listen_notify": False,
                # The service uses no notifications, but DBOS waits for this interval when it ends.
                "notification_listener_polling_interval_sec": _QUICK_S,
            }
        )

        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=20)
        def execute_turn(run_id: str, number: int) -> None:
            outcome = DBOS.run_step({"name": "perform"}, perform, run_id, number)
            if outcome is not None:
                DBOS.run_step(_SETTLE, settle, run_id, number, outcome)

        self._execute = execute_turn
        DBOS.launch()
        _stop_idle_polling(engine)
        _look_before_dequeuing(engine, self._database)
        self._queue = DBOS.retrieve_queue(QUEUE)

    def close(self, wait_s: int, give_up_s: float) -> None:
        """Stop taking turns; wait for those at work, but no longer than `give_up_s`."""
        from dbos import DBOS

        destroying = threading.Thread(
            target=DBOS.destroy, kwargs={"workflow_completion_timeout_sec": wait_s}, daemon=True
        )
        destroying.start()
        destroying.join(give_up_s)

    def put(self, turn: WaitingTurn) -> None:
        """Queue a turn; the same turn again finds the workflow that exists."""
        from dbos import SetEnqueueOptions, SetWorkflowID

        if self._queue is None or self._execute is None:
            raise RuntimeError("the queue is not open")
        lane = hashlib.sha256(f"{turn.url}\0{turn.branch}".encode()).hexdigest()[:32]
        with SetWorkflowID(_workflow_id(turn.run_id, turn.number)), SetEnqueueOptions(queue_partition_key=lane):
            self._queue.enqueue(self._execute, turn.run_id, turn.number)

    def recover(self, executor: str) -> None:
        """Put the turns that a dead worker had taken back into the queue."""
        from dbos import DBOS

        # resume_workflow() would also take another worker's workflow; this takes only dead workers' ones.
        DBOS._recover_pending_workflows([executor])  # noqa: SLF001 — there is no public name for it

    def gave_up(self, run_id: str, number: int) -> str | None:
        """Return the state with which the queue gave up a turn; None: it has not given it up."""
        from dbos import DBOS

        status = DBOS.get_workflow_status(_workflow_id(run_id, number))
        return status.status if status is not None and status.status in _BROKEN else None

    def mark_busy(self) -> None:
        """Note that there is something to do: the queue is polled faster for a while."""
        self._busy_at = time.monotonic()

    def adjust_polling(self) -> None:
        """Poll the queue fast after recent work and slowly otherwise.

        The database holds one interval for all workers: a busy worker sets it again, an idle one leaves it to others.
        """
        if self._queue is None:
            return
        busy = time.monotonic() - self._busy_at < _QUICK_FOR_S
        wanted_s = _QUICK_S if busy else _SLOW_S
        current_s = self._queue.polling_interval_sec if busy else self._interval_s
        if current_s != wanted_s:
            self._queue.set_polling_interval_sec(wanted_s)
        self._interval_s = wanted_s


def _mend_sqlite(database: Database) -> None:
    """Give an older SQLite `unixepoch('subsec')`, the present to the millisecond, which DBOS uses from Python 3.12 on.

    Without this function the call is NULL, and no row of the queue can be written.
    """
    is_old = database.is_sqlite and database.engine.dialect.dbapi.sqlite_version_info < _SUBSEC_SINCE  # type: ignore[union-attr]  # it is loaded
    if is_old and not sa.event.contains(sa.Engine, "connect", _add_unixepoch):
        # DBOS makes engines of its own, one of them only to migrate.
        sa.event.listen(sa.Engine, "connect", _add_unixepoch)


def _add_unixepoch(connection: Any, _record: object) -> None:
    if hasattr(connection, "create_function"):
        connection.create_function("unixepoch", 1, _unixepoch)


def _unixepoch(modifier: str) -> float:
    if modifier != "subsec":
        raise ValueError(modifier)
    return round(time.time(), 3)


def _make_queue(database: Database, concurrency: int) -> None:
    """Create or configure the queue before DBOS starts, which would take a second to notice it later."""
    from dbos import DBOSClient

    migrate_queue(database)
    url = database.url.render_as_string(hide_password=False)
    client = DBOSClient(system_database_url=url, system_database_pool_size=1, application_name=_APPLICATION)
    try:
        client.register_queue(
            QUEUE,
            worker_concurrency=concurrency,
            # One branch is one partition: two runs on it wait for each other, and are never mixed.
            partition_concurrency=1,
            polling_interval_sec=_QUICK_S,
        )
    finally:
        client.destroy()


def migrate_queue(database: Database) -> None:
    """Create or upgrade the queue's own tables."""
    from dbos import DBOS

    _mend_sqlite(database)
    DBOS.migrate(database.url.render_as_string(hide_password=False))


def _stop_idle_polling(engine: "DBOS") -> None:
    """Stop DBOS from polling for unused features, which costs a third of an idle service's CPU time."""
    # No public name for either: delayed workflows and deadlines, and the queue for DBOS's own workflows.
    engine._background_jobs_stop_event.set()  # noqa: SLF001 — see above
    engine._registry.get_internal_queue()._polling_interval_sec = _NEVER_S  # noqa: SLF001 — see above


def _look_before_dequeuing(engine: "DBOS", database: Database) -> None:
    """Let each poll ask first whether there is anything to dequeue.

    DBOS puts its large question together for each poll, which costs a third of the CPU time of a service that waits.
    """
    table = sa.table(
        _TABLE, sa.column("queue_name"), sa.column("status"), schema=None if database.is_sqlite else _SCHEMA
    )
    # The status in the question's text: the index of what is in flight is found by it.
    waiting = sa.select(sa.literal(1)).where(
        table.c.queue_name == sa.bindparam("queue"), table.c.status == sa.literal_column(f"'{_WAITING}'")
    )
    tables = engine._sys_db  # noqa: SLF001 — there is no public name for it
    scopes = tables.dequeue_scopes

    def scopes_with_work(queue_name: str) -> list[str | None]:
        with database.read() as connection:
            found = connection.execute(waiting.limit(1), {"queue": queue_name}).first()
        return [] if found is None else scopes(queue_name)

    tables.dequeue_scopes = scopes_with_work  # type: ignore[method-assign]  # as above


def _workflow_id(run_id: str, number: int) -> str:
    return f"{run_id}:{number}"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A turn, as the queue names it."""

    workflow_id: str
    is_open: bool = False
    executor: str | None = None
    """The worker that executes it; None: no worker does."""

    @property
    def run_id(self) -> str:
        """The id of the turn's run."""
        return self.workflow_id.rpartition(":")[0]


class QueueHistory:
    """The queue's history, as a context manager; empty if no worker has ever run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._client: DBOSClient | None = None

    def __enter__(self) -> Self:
        schema = None if self._database.is_sqlite else _SCHEMA
        if sa.inspect(self._database.engine).has_table(_TABLE, schema=schema):
            from dbos import DBOSClient

            logging.getLogger("dbos").setLevel(logging.WARNING)
            url = self._database.url.render_as_string(hide_password=False)
            # Pruning sends one statement at a time, so one connection is enough.
            # SQLite is used through this service's engine, whose connections overwrite deleted content.
            self._client = DBOSClient(
                system_database_url=url,
                system_database_engine=self._database.engine if self._database.is_sqlite else None,
                system_database_pool_size=1,
                retry_connection_errors=False,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            self._client.destroy()

    def ended(self, before: int, skip: int, limit: int) -> list[QueueEntry]:
        """Return entries that ended before an instant (microseconds), oldest first, after the first `skip`.

        Raises:
            DatabaseError: The queue's tables are not those of this release.
        """
        if self._client is None:
            return []
        until = rfc3339(before)
        try:
            found = self._client.list_workflows(
                name=WORKFLOW, completed_before=until, offset=skip, limit=limit, load_input=False, load_output=False
            )
        except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
            raise DatabaseError(f"the queue cannot be read: {error.orig}; run: runwarden service migrate") from error
        return [QueueEntry(one.workflow_id) for one in found]

    def of(self, workflow_ids: Sequence[str]) -> list[QueueEntry]:
        """Return the entries of turns, each named by its run's id, a colon and its number."""
        if self._client is None or not workflow_ids:
            return []
        found = self._client.list_workflows(workflow_ids=[*workflow_ids], load_input=False, load_output=False)
        return [
            QueueEntry(one.workflow_id, one.status in _OPEN, one.executor_id if one.status == _TAKEN else None)
            for one in found
        ]

    def forget(self, entries: Sequence[QueueEntry]) -> None:
        """Remove entries with their steps, in one transaction."""
        if self._client is not None and entries:
            self._client.delete_workflows([entry.workflow_id for entry in entries])
