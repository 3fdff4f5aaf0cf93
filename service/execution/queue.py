"""The durable engine: DBOS records which worker has which turn or job, and which of them have ended."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, SetWorkflowID
from dbos import error as dbos_error

from service.clock import rfc3339
from service.store.database import Database
from service.store.migrations import DatabaseError

_APPLICATION: Final = "runwarden"
_SPARE_CONNECTIONS: Final = 8
"""The connections for DBOS's own threads, each of which waits with one while the database is down."""
_BATCH: Final = 500
NO_EXECUTOR: Final = ""
"""The executor name of a turn or job that has ended although DBOS could not record that."""
_SUBSEC_SINCE: Final = (3, 42)
"""The first version of SQLite that knows `unixepoch('subsec')`."""


@dataclass(eq=False)
class DurableEngine:
    """DBOS as this process uses it; a process has only one. Turns are named `RUN_ID:NUMBER`, jobs `JOB:KEY`."""

    _database: Database
    _executor: str
    _concurrency: int
    _grace_s: float
    """How long DBOS may take to record an end; `in_progress` is called several times within that."""
    _closing: threading.Event = field(default_factory=threading.Event)
    _at_work: set[str] = field(default_factory=set)
    _unsure: set[str] = field(default_factory=set)
    """Names of work that could not be begun, though DBOS may have recorded that this process has it."""
    _ended: dict[str, float] = field(default_factory=dict)
    """Names that DBOS still has for this process although they ended; since when (monotonic seconds)."""
    _looked_at: float = 0.0

    def open(
        self, turn: Callable[[str, int], None], job: Callable[[str, str], None], ended: Callable[[], None]
    ) -> None:
        """Connect. Turns and jobs are executed by the functions, and `ended` is called after each.

        None of the functions may raise: DBOS would never execute the workflow again.
        """
        # DBOS would otherwise advertise its console at every start, and log a traceback whenever the connection of its
        # unused scheduler breaks. The service itself logs once that the database is down.
        logging.getLogger("dbos").setLevel(logging.ERROR)
        migrate_queue(self._database)
        self._client = _client(self._database)
        patient = {"creator": lambda: self._database.connect_patiently(self._closing)}
        engine = DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": self._database.url.render_as_string(hide_password=False),
                # Its calls wait here for a connection: DBOS tries again at ever longer intervals, with a slot taken.
                "db_engine_kwargs": None if self._database.is_sqlite else patient,
                "sys_db_pool_size": self._concurrency + _SPARE_CONNECTIONS,
                "executor_id": self._executor,
                # Constant: DBOS recovers only workflows of the same version, and those of the service stay compatible.
                "application_version": "runwarden-1",
                "log_level": "ERROR",
                "enable_otlp": False,
                "use_listen_notify": False,
                # The service uses no notifications, but DBOS waits for this interval when it closes.
                "notification_listener_polling_interval_sec": 0.2,
            }
        )

        def work(act: Callable[..., None], *arguments: str | int) -> None:
            try:
                act(*arguments)
            finally:
                self._at_work.discard(str(DBOS.workflow_id))
                ended()

        @DBOS.workflow(name="execute_turn", max_recovery_attempts=None)
        def execute_turn(run_id: str, number: int) -> None:
            work(turn, run_id, number)

        @DBOS.workflow(name="run_job", max_recovery_attempts=None)
        def run_job(name: str, key: str) -> None:
            work(job, name, key)

        self._turn, self._job = execute_turn, run_job
        DBOS.launch()
        # The service uses neither its queues, schedules, delays nor time limits, for which DBOS would ask the database
        # every second, and on PostgreSQL keep a transaction open.
        for unused in (*engine.background_thread_stop_events, engine._background_jobs_stop_event):  # noqa: SLF001  # there is no setting for it
            unused.set()

    def close(self, wait_s: int, give_up_s: float) -> None:
        """Start nothing new; wait for the work in progress, at most `give_up_s`."""
        destroying = threading.Thread(
            target=DBOS.destroy, kwargs={"workflow_completion_timeout_sec": wait_s}, daemon=True
        )
        destroying.start()
        destroying.join(give_up_s)
        self._closing.set()

    @property
    def at_work(self) -> frozenset[str]:
        """The names of the turns and jobs in progress in this process."""
        return frozenset(self._at_work)

    def begin(self, name: str) -> None:
        """Execute a turn or a job in this process now, unless it is on record."""
        first, _, second = name.partition(":")
        self._at_work.add(name)
        try:
            with SetWorkflowID(name, workflow_id_reuse_policy="reject"):
                if first.startswith("run_"):
                    DBOS.start_workflow(self._turn, first, int(second))
                else:
                    DBOS.start_workflow(self._job, first, second)
        except dbos_error.DBOSWorkflowIDInUseError:
            self._at_work.discard(name)
        except BaseException:
            self._at_work.discard(name)
            self._unsure.add(name)
            raise

    def in_progress(self) -> dict[str, str]:
        """Return the names of all workers' turns and jobs in progress, each with the worker's executor name.

        One that ended in this process belongs to `NO_EXECUTOR` if DBOS has not recorded that after the grace period.
        """
        pending = self._client.list_workflows(status="PENDING", load_input=False, load_output=False)
        held = {flow.workflow_id: str(flow.executor_id) for flow in pending if flow.workflow_id not in self._unsure}
        now, at_work = time.monotonic(), self.at_work
        # After an outage of the database, DBOS gets the whole grace period again.
        before = self._ended if now - self._looked_at < self._grace_s / 2 else {}
        self._looked_at = now
        own_turns = [name for name, executor in held.items() if executor == self._executor and name not in at_work]
        self._ended = {name: before.get(name, now) for name in own_turns}
        return held | {name: NO_EXECUTOR for name, since in self._ended.items() if now - since >= self._grace_s}

    def ended_among(self, names: Sequence[str]) -> frozenset[str]:
        """Return the names of the turns and jobs that are on record as ended."""
        if not names:
            return frozenset()
        flows = self._client.list_workflows(workflow_ids=[*names], load_input=False, load_output=False)
        return frozenset(flow.workflow_id for flow in flows if flow.status != "PENDING")

    def forget(self, names: Sequence[str]) -> None:
        """Delete the records of turns and jobs that no worker has, so that they can begin again."""
        if names:
            self._client.delete_workflows([*names])
            self._unsure -= {*names}


def migrate_queue(database: Database) -> None:
    """Create or upgrade the engine's own tables.

    An older SQLite gets `unixepoch('subsec')`, the present to the millisecond, which DBOS uses from Python 3.12 on:
    without this function the call is NULL, and no row of the queue can be written.
    """
    is_old = database.is_sqlite and database.engine.dialect.dbapi.sqlite_version_info < _SUBSEC_SINCE  # type: ignore[union-attr]  # the engine has loaded its driver
    if is_old and not sa.event.contains(sa.Engine, "connect", _add_unixepoch):
        # DBOS makes further engines, one of them only to migrate.
        sa.event.listen(sa.Engine, "connect", _add_unixepoch)
    DBOS.migrate(database.url.render_as_string(hide_password=False))


def _add_unixepoch(connection: Any, _record: object) -> None:
    def unixepoch(modifier: str) -> float:
        if modifier != "subsec":
            raise ValueError(modifier)
        return round(time.time(), 3)

    if hasattr(connection, "create_function"):
        connection.create_function("unixepoch", 1, unixepoch)


def _client(database: Database) -> DBOSClient:
    """Return a client that uses this service's connections, and raises while the database is down."""
    return DBOSClient(
        system_database_engine=database.writing, retry_connection_errors=False, application_name=_APPLICATION
    )


def forget_ended(database: Database, before: int, *, dry_run: bool = False) -> int:
    """Delete, or only count, the records of work that ended before an instant (microseconds); return how many.

    Raises:
        DatabaseError: The tables are not those of this release.
    """
    if not _has_run(database):
        return 0
    number = 0
    page: dict[str, Any] = {
        "completed_before": rfc3339(before),
        "limit": _BATCH,
        "load_input": False,
        "load_output": False,
    }
    try:
        client = _client(database)
        while flows := client.list_workflows(offset=number if dry_run else 0, **page):
            number += len(flows)
            if not dry_run:
                client.delete_workflows([flow.workflow_id for flow in flows])
    except (sa.exc.OperationalError, sa.exc.ProgrammingError) as error:
        raise DatabaseError(f"the queue cannot be read: {error.orig}; run: runwarden service migrate") from error
    return number


def forget_turns(database: Database, turns: Sequence[str]) -> None:
    """Delete the records of turns, named `RUN_ID:NUMBER`."""
    if turns and _has_run(database):
        client = _client(database)
        # Twice: DBOS deletes outputs first, and a worker may write one until the turns themselves are deleted.
        for _ in range(2):
            client.delete_workflows([*turns])


def _has_run(database: Database) -> bool:
    """Whether any worker has ever run: only then the engine has tables."""
    return sa.inspect(database.engine).has_table("workflow_status", schema=None if database.is_sqlite else "dbos")
