"""The worker: carries accepted turns into the queue, executes them, and takes over what a dead worker left."""

import hashlib
import logging
import os
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final

from service.clock import Clock
from service.execution.agent import InterruptedTurn
from service.execution.turn import SupersededError, TurnExecution
from service.store import turns, workers
from service.store.database import Database
from service.store.turns import Ending
from service.store.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from dbos import Queue

QUEUE: Final = "turns"
# Pinned: workflows are recovered only by a program of the same version, and ours stay compatible.
APPLICATION_VERSION: Final = "runwarden-1"
_POLL_S: Final = 0.3
_ROUND_S: Final = 1.0
_CLOSING_S: Final = 5.0
_BROKEN: Final = frozenset({"ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"})
_log = logging.getLogger(__name__)


class TurnWorker:
    """Executes turns in this process through DBOS; `wake()` tells it that something was accepted."""

    def __init__(
        self,
        database: Database,
        execution: TurnExecution,
        clock: Clock,
        *,
        sandbox: str,
        concurrency: int,
        ttl_s: float,
        alone: bool,
    ) -> None:
        self._database = database
        self._execution = execution
        self._clock = clock
        self._concurrency = concurrency
        self._ttl_s = ttl_s
        self._alone = alone
        """True when no other worker can live on this database: whoever is on record is dead."""
        now = self._beat_due = clock()
        self._me = Worker(secrets.token_hex(12), sandbox, os.getpid(), now, now)
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._rounds = threading.Thread(target=self._go_round, name="worker-rounds", daemon=True)
        self._active = 0
        self._parked = 0
        self._counting = threading.Condition()
        self._queue: Queue | None = None
        self._execute: Callable[[str, int], None] | None = None

    def wake(self) -> None:
        """Look for accepted turns now instead of at the next round."""
        self._woken.set()

    def start(self) -> None:
        """Connect to the queue and begin to execute; takes about a second, most of it imports."""
        from dbos import DBOS

        self._beat()
        # DBOS would otherwise advertise its console at every start.
        logging.getLogger("dbos").setLevel(logging.WARNING)
        url = self._database.url.render_as_string(hide_password=False)
        DBOS(
            config={
                "name": "runwarden",
                "system_database_url": url,
                "executor_id": self._me.executor,
                "application_version": APPLICATION_VERSION,
                "log_level": "WARNING",
                "enable_otlp": False,
            }
        )
        self._register()
        DBOS.launch()
        self._queue = DBOS.register_queue(
            QUEUE,
            worker_concurrency=self._concurrency,
            # One branch is one partition: two runs on it wait for each other, and are never mixed.
            partition_concurrency=1,
            polling_interval_sec=_POLL_S,
            on_conflict="always_update",
        )
        self._rounds.start()

    def stop(self, grace_s: float) -> bool:
        """Take nothing up any more, give the turns at work their grace, interrupt the rest; True when none was left.

        What was interrupted stays in the queue under this worker's name, and whoever comes next takes it over.
        """
        from dbos import DBOS

        self._ended.set()
        self._woken.set()
        self._rounds.join()
        wait_s = int(grace_s) + 1 if self._active else 0
        destroying = threading.Thread(
            target=DBOS.destroy, kwargs={"workflow_completion_timeout_sec": wait_s}, daemon=True
        )
        destroying.start()
        destroying.join(grace_s if self._active else _CLOSING_S)
        self._execution.stopping.set()
        with self._counting:
            return self._counting.wait_for(lambda: self._parked >= self._active, _CLOSING_S) and not self._active

    def _register(self) -> None:
        from dbos import DBOS

        @DBOS.workflow(name="execute_turn", max_recovery_attempts=20)
        def execute_turn(run_id: str, number: int) -> None:
            ending = DBOS.run_step({"name": "perform"}, self._perform, run_id, number)
            if ending is not None:
                DBOS.run_step({"name": "settle"}, self._settle, run_id, number, ending)

        self._execute = execute_turn

    def _perform(self, run_id: str, number: int) -> dict[str, Any] | None:
        with self._counting:
            self._active += 1
        try:
            ending = self._execution.perform(run_id, number, self._me.executor)
        except InterruptedTurn:
            self._leave_unfinished(run_id, number)
            return None
        except SupersededError as reason:
            _log.warning("not executed again: %s", reason)
            return None
        except Exception:  # noqa: BLE001 — one guard at the boundary of a turn: it must come to an end
            _log.exception("%s turn %d failed in the service itself", run_id, number)
            ending = Ending("failed", failure="the service failed; its log says why. Continue the run to try again")
        finally:
            with self._counting:
                self._active -= 1
        return {name: getattr(ending, name) for name in Ending.__slots__}

    def _settle(self, run_id: str, number: int, ending: dict[str, Any]) -> None:
        self._execution.settle(run_id, number, Ending(**ending))

    def _leave_unfinished(self, run_id: str, number: int) -> None:
        """Hold the turn's thread until the process is gone: any return would count as an end of the workflow."""
        _log.info("%s turn %d is interrupted; it starts again with the service", run_id, number)
        with self._counting:
            self._parked += 1
            self._counting.notify_all()
            self._counting.wait_for(lambda: False)

    def _go_round(self) -> None:
        recovered = False
        while not self._ended.is_set():
            try:
                self._dispatch()
                self._beat()
                self._take_over(everybody=self._alone and not recovered)
                recovered = True
            except Exception:  # noqa: BLE001 — one guard at the boundary of a round: the next one tries again
                _log.exception("the worker's round failed; it tries again")
            self._woken.wait(_ROUND_S)
            self._woken.clear()

    def _dispatch(self) -> None:
        from dbos import SetEnqueueOptions, SetWorkflowID

        if self._queue is None or self._execute is None:
            return
        with self._database.read() as connection:
            found = turns.waiting(connection)
        for turn in found:
            lane = hashlib.sha256(f"{turn.url}\0{turn.branch}".encode()).hexdigest()[:32]
            # The same id again finds the workflow that exists: a crash between the two writes does no harm.
            with SetWorkflowID(_workflow_id(turn.run_id, turn.number)), SetEnqueueOptions(queue_partition_key=lane):
                self._queue.enqueue(self._execute, turn.run_id, turn.number)
            with self._database.write() as connection:
                turns.mark_dispatched(connection, turn.run_id, turn.number, self._clock())

    def _beat(self) -> None:
        if self._clock() < self._beat_due:
            return
        self._beat_due = self._clock() + int(self._ttl_s * 1_000_000 / 4)
        me = Worker(self._me.executor, self._me.sandbox, self._me.pid, self._me.started_at, self._clock())
        with self._database.write() as connection:
            workers.beat(connection, me)

    def _take_over(self, *, everybody: bool) -> None:
        """Put the turns of dead workers back into the queue, and end those that the queue gave up."""
        from dbos import DBOS

        silent_before = self._clock() - int(self._ttl_s * 1_000_000)
        with self._database.read() as connection:
            dead = workers.all_of(connection) if everybody else workers.silent_since(connection, silent_before)
        for worker in dead:
            if worker.executor == self._me.executor:
                continue
            _log.warning("worker %s (pid %d) is gone; its turns start again", worker.executor, worker.pid)
            # resume_workflow() asks no questions; this one takes only what the dead still own.
            DBOS._recover_pending_workflows([worker.executor])  # noqa: SLF001 — there is no public door to it
            with self._database.write() as connection:
                workers.forget(connection, worker.executor)
        if dead:
            self._end_broken()

    def _end_broken(self) -> None:
        from dbos import DBOS

        with self._database.read() as connection:
            unfinished = turns.unfinished(connection)
        for run_id, number in unfinished:
            status = DBOS.get_workflow_status(_workflow_id(run_id, number))
            if status is not None and status.status in _BROKEN:
                failure = f"the queue gave the turn up ({status.status}); continue the run to try again"
                self._execution.settle(run_id, number, Ending("failed", failure=failure))


def _workflow_id(run_id: str, number: int) -> str:
    return f"{run_id}:{number}"
