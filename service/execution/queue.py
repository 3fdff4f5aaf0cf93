"""The durable engine: DBOS gives each turn and each errand to one worker, and to another one if that worker dies."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, SetEnqueueOptions, SetWorkflowID, WorkflowStatus

from service.clock import rfc3339
from service.store.database import Database, DatabaseError
from service.store.dispatch import WaitingTurn

_TURNS: Final = "turns"
_ERRANDS: Final = "errands"
_ERRANDS_AT_ONCE: Final = 4
_APPLICATION: Final = "runwarden"
# Constant: DBOS recovers only workflows of the same version, and those of the service stay compatible.
_APPLICATION_VERSION: Final = "runwarden-1"
_POLL_S: Final = {_TURNS: 0.25, _ERRANDS: 0.5}
_SPARE_CONNECTIONS: Final = 4
_BATCH: Final = 500
_SUBSEC_SINCE: Final = (3, 42)
"""The first version of SQLite that knows `unixepoch('subsec')`."""


class DurableEngine:
    """DBOS as this process uses it; a process has only one."""

    def __init__(self, database: Database, executor: str, concurrency: int) -> None:
        self._database = database
        self._executor = executor
        self._concurrency = concurrency
        self._workflows: dict[str, Callable[..., None]] = {}
        self._begun: list[str] = []
        """The workflows that this process executes now."""
        self._unbegun: set[str] = set()
        """Those that DBOS had given to this process at the last call of `recover_unbegun`, and that had not begun."""

    def open(self, turn: Callable[[str, int], None], errands: Mapping[str, Callable[[str], None]]) -> None:
        """Connect and begin to execute; a workflow of a dead worker is called again from its beginning.

        None of the functions may raise: an error would end the workflow for good.
        """
        # DBOS would otherwise advertise its console at every start.
        logging.getLogger("dbos").setLevel(logging.WARNING)
        migrate_queue(self._database)
        with _client(self._database) as client:
            # Before the launch: a queue that is registered later is noticed only after a second.
            for queue, at_once in ((_TURNS, self._concurrency), (_ERRANDS, _ERRANDS_AT_ONCE)):
                client.register_queue(queue, worker_concurrency=at_once, polling_interval_sec=_POLL_S[queue])
        DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": self._database.url.render_as_string(hide_password=False),
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

        @DBOS.workflow(name="execute_turn", max_recovery_attempts=None)
        def execute_turn(run_id: str, number: int) -> None:
            with self._at_work():
                turn(run_id, number)

        @DBOS.workflow(name="run_errand", max_recovery_attempts=None)
        def run_errand(errand: str, key: str) -> None:
            with self._at_work():
                errands[errand](key)

        self._workflows = {_TURNS: execute_turn, _ERRANDS: run_errand}
        DBOS.launch()

    def close(self, wait_s: int, give_up_s: float) -> None:
        """Start nothing new; wait for what is at work, but no longer than `give_up_s`."""
        destroying = threading.Thread(
            target=DBOS.destroy, kwargs={"workflow_completion_timeout_sec": wait_s}, daemon=True
        )
        destroying.start()
        destroying.join(give_up_s)

    def put_turn(self, turn: WaitingTurn) -> None:
        """Queue a turn; the same turn again changes nothing."""
        with SetWorkflowID(f"{turn.run_id}:{turn.number}"):
            DBOS.enqueue_workflow(_TURNS, self._workflows[_TURNS], turn.run_id, turn.number)

    def put_errand(self, errand: str, key: str) -> None:
        """Queue an errand, unless the same one waits or is at work."""
        with SetEnqueueOptions(deduplication_id=f"{errand}:{key}", duplication_policy="return-existing"):
            DBOS.enqueue_workflow(_ERRANDS, self._workflows[_ERRANDS], errand, key)

    def recover(self, executor: str) -> None:
        """Put the turns of a dead worker back into the queue, and drop its errands; one worker at a time may do so.

        A dropped errand is still due, so that it is put into the queue again.
        """
        self._put_back(self._pending(executor))

    def recover_unbegun(self) -> None:
        """Do the same for what was given to this process and has not begun between two calls.

        DBOS loses a workflow if the database goes away just after it gave it to a process.
        """
        waiting = [one for one in self._pending(self._executor) if one.workflow_id not in self._begun]
        lost = [one for one in waiting if one.workflow_id in self._unbegun]
        self._unbegun = {one.workflow_id for one in waiting}
        self._put_back(lost)

    def _pending(self, executor: str) -> list[WorkflowStatus]:
        return DBOS.list_workflows(status="PENDING", executor_id=executor, load_input=False, load_output=False)

    def _put_back(self, found: list[WorkflowStatus]) -> None:
        if turns := [one.workflow_id for one in found if one.queue_name == _TURNS]:
            DBOS.resume_workflows(turns, queue_name=_TURNS)
        if errands := [one.workflow_id for one in found if one.queue_name == _ERRANDS]:
            DBOS.cancel_workflows(errands)

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


@contextmanager
def _client(database: Database) -> Iterator[DBOSClient]:
    client = DBOSClient(
        system_database_url=database.url.render_as_string(hide_password=False),
        # SQLite is used through this service's connections, which overwrite deleted content.
        system_database_engine=database.writing if database.is_sqlite else None,
        system_database_pool_size=1,
        retry_connection_errors=False,
        application_name=_APPLICATION,
    )
    try:
        yield client
    finally:
        client.destroy()


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
        with _client(database) as client:
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
        with _client(database) as client:
            client.delete_workflows([*turns])


def _has_run(database: Database) -> bool:
    """Whether any worker has ever run: only then the engine has tables."""
    return sa.inspect(database.engine).has_table("workflow_status", schema=None if database.is_sqlite else "dbos")
