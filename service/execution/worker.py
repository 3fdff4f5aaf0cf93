"""The worker: puts accepted turns into the queue, executes them, and recovers those of dead workers."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Final, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from service.clock import SECOND_MICROS, Clock
from service.execution.queue import TurnQueue
from service.execution.turn import OWN_FAULT, InterruptedTurnError, SupersededError, TurnExecution
from service.execution.workspace import Workspaces
from service.observability.log import bound
from service.settings import DataFolder, ExecutionSettings
from service.store import dispatch, organizations, turns, workers
from service.store.database import Database
from service.store.doorbell import DoorbellListener
from service.store.turns import TurnOutcome
from service.store.workers import Worker

_ROUND_S: Final = 1.0
_CLOSING_S: Final = 5.0
_BEATS_IN_TTL: Final = 4
_LOOK_S: Final = 2.0
"""How often a worker looks for dead ones."""
_DISPATCH: Final = 1
"""The number of the dispatch task, which one worker at a time does for all."""
_GIVEN_UP: Final = {"MAX_RECOVERY_ATTEMPTS_EXCEEDED": "its workers were lost, one after the other"}
_DATABASE_PAUSES_S: Final = (1.0, 5.0, 20.0)
_logger = logging.getLogger(__name__)


class Companion(Protocol):
    """A thread that lives as long as the worker."""

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """Ask it to stop."""


class TurnWorker:
    """Executes turns in this process; `wake()` tells it that a turn was accepted."""

    def __init__(
        self,
        database: Database,
        folder: DataFolder,
        settings: ExecutionSettings,
        execution: TurnExecution,
        companions: Sequence[Companion],
        clock: Clock,
        *,
        concurrency: int,
    ) -> None:
        self._database = database
        self._folder = folder
        self._settings = settings
        self._execution = execution
        self._companions = companions
        self._clock = clock
        executor = secrets.token_hex(12)
        sandbox = str(execution.sandbox)
        self.me: Final = Worker(executor, socket.gethostname(), sandbox, os.getpid(), concurrency, clock(), clock())
        """This worker as other processes see it."""
        self._workspaces: Workspaces | None = None
        self._queue = TurnQueue(database, executor, concurrency)
        self._doorbell: DoorbellListener | None = None
        self._beat_due = self._look_due = 0.0
        self._recovered = False
        self._woken = threading.Event()
        self._ended = threading.Event()
        """Set: no new turns are started."""
        self._gone = threading.Event()
        """Set: this worker stops its heartbeat."""
        self._rounds = threading.Thread(target=self._run_rounds, name="worker-rounds", daemon=True)
        self._active = 0
        self._interrupted = 0
        self._counting = threading.Condition()

    def wake(self) -> None:
        """Look for accepted turns now instead of at the next round."""
        self._woken.set()

    def start(self) -> None:
        """Connect to the queue and begin to execute; takes about a second, most of it imports."""
        self._workspaces = Workspaces(self._folder, self.me.executor)
        self._beat()
        self._queue.open(self._perform, self._settle)
        self._rounds.start()
        for one in self._companions:
            one.start()
        if not self._database.is_sqlite:
            self._doorbell = DoorbellListener(self._database.url, self.wake)

    def stop(self, grace_s: float) -> bool:
        """Start no new turns, wait `grace_s` for those at work, and interrupt the rest; return whether none was left.

        Interrupted turns stay in the queue under this worker's name until the next worker recovers them.
        """
        self._ended.set()
        for one in self._companions:
            one.close()
        if self._doorbell is not None:
            self._doorbell.close()
        self._queue.close(int(grace_s) + 1 if self._active else 0, grace_s if self._active else _CLOSING_S)
        self._execution.stopping.set()
        with self._counting:
            idle = self._counting.wait_for(lambda: self._interrupted >= self._active, _CLOSING_S) and not self._active
        self._gone.set()
        self._woken.set()
        self._rounds.join()
        self._sign_off()
        if idle and self._workspaces is not None:
            self._workspaces.close()
        return idle

    def _sign_off(self) -> None:
        try:
            with self._database.write() as connection:
                workers.sign_off(connection, self.me.executor)
        except SQLAlchemyError:
            _logger.warning(
                "the database is unavailable; the other workers notice after worker_ttl_s that this one is gone"
            )

    def _perform(self, run_id: str, number: int) -> dict[str, object] | None:
        with self._bound(run_id, number):
            return self._end(run_id, number)

    def _end(self, run_id: str, number: int) -> dict[str, object] | None:
        """Execute a turn and return its outcome; None: another worker has to end it."""
        self._queue.mark_busy()
        with self._counting:
            self._active += 1
        try:
            outcome = self._attempt(run_id, number)
        except InterruptedTurnError:
            self._leave_unfinished(run_id, number)
            return None
        except SupersededError as reason:
            _logger.warning("not executed again: %s", reason)
            return None
        except Exception:  # One guard at the boundary of a turn: it must come to an end.
            _logger.exception("%s turn %d failed in the service itself", run_id, number)
            attempt = self._execution.attempt_of(run_id, number)
            outcome = TurnOutcome("failed", failure=OWN_FAULT, attempt=attempt)
        finally:
            self._queue.mark_busy()
            with self._counting:
                self._active -= 1
        return asdict(outcome)

    def _attempt(self, run_id: str, number: int) -> TurnOutcome:
        """Execute a turn; when the database becomes unavailable, wait and start the turn again."""
        for pause_s in _DATABASE_PAUSES_S:
            try:
                return self._execution.perform(run_id, number, self._own_workspaces())
            except OperationalError as error:
                _logger.warning(
                    "%s turn %d waits %g s: the database is unavailable (%s)", run_id, number, pause_s, error.orig
                )
                if self._execution.stopping.wait(pause_s):
                    raise InterruptedTurnError from error
        return self._execution.perform(run_id, number, self._own_workspaces())

    def _settle(self, run_id: str, number: int, outcome: dict[str, Any]) -> None:
        with self._bound(run_id, number):
            self._execution.settle(run_id, number, TurnOutcome(**outcome))
        # The turn has freed its place for another.
        self.wake()

    def _bound(self, run_id: str, number: int) -> AbstractContextManager[None]:
        """Add the run, the turn and the organization to every line of the log."""
        try:
            with self._database.read() as connection:
                owner = organizations.of_run(connection, run_id)
        except SQLAlchemyError:
            owner = None
        return bound(run_id=run_id, turn=number, organization=None if owner is None else owner.slug)

    def _own_workspaces(self) -> Workspaces:
        if self._workspaces is None:
            raise RuntimeError("the worker is not started")
        return self._workspaces

    def _leave_unfinished(self, run_id: str, number: int) -> None:
        """Hold the turn's thread until the process ends: a return would count as the end of the workflow."""
        _logger.info("%s turn %d was interrupted; the next worker starts it again", run_id, number)
        with self._counting:
            self._interrupted += 1
            self._counting.notify_all()
            self._counting.wait_for(lambda: False)

    def _run_rounds(self) -> None:
        while not self._gone.is_set():
            try:
                # Also while draining: a worker without a heartbeat counts as dead, and loses its turns.
                self._beat()
                self._execution.attend()
                if not self._ended.is_set():
                    self._dispatch()
                    self._recover_dead_workers()
                    self._queue.adjust_polling()
            except Exception:  # One guard at the boundary of a round: the next one tries again.
                _logger.exception("the worker's round failed; the next one follows")
            self._woken.wait(_ROUND_S)
            self._woken.clear()

    def _dispatch(self) -> None:
        with self._database.sole(_DISPATCH) as mine:
            if not mine:
                return
            with self._database.read() as connection:
                found = dispatch.next_turns(connection, self._slots(connection), self._settings.organization_places)
            for turn in found:
                # Queueing a turn twice is harmless: a crash before it is marked only costs time.
                self._queue.put(turn)
            if found:
                self._queue.mark_busy()
                with self._database.write() as connection:
                    turns.mark_dispatched(connection, [(turn.run_id, turn.number) for turn in found], self._clock())

    def _slots(self, connection: sa.Connection) -> int:
        """Return how many turns all workers together execute at the same time."""
        if self._database.is_sqlite:
            return self.me.concurrency
        ttl_micros = int(self._settings.worker_ttl_s * SECOND_MICROS)
        return sum(worker.concurrency for worker in workers.heard_within(connection, ttl_micros, self._clock))

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._beat_due:
            return
        self._beat_due = now + self._settings.worker_ttl_s / _BEATS_IN_TTL
        with self._database.write() as connection:
            workers.beat(connection, self.me, self._clock)

    def _recover_dead_workers(self) -> None:
        """Put the turns of dead workers back into the queue, and fail those that the queue gave up."""
        now = time.monotonic()
        if now < self._look_due:
            return
        self._look_due = now + _LOOK_S
        self._own_workspaces().end_the_dead()
        ttl_micros = int(self._settings.worker_ttl_s * SECOND_MICROS)
        with self._database.read() as connection:
            # SQLite has one worker at a time: at the start, every other one on record is dead.
            all_others = self._database.is_sqlite and not self._recovered
            dead = workers.all_of(connection) if all_others else workers.silent_for(connection, ttl_micros, self._clock)
        dead = [worker for worker in dead if worker.executor != self.me.executor]
        for worker in dead:
            level = logging.WARNING if worker.seen_at else logging.INFO
            _logger.log(level, "worker %s (%s, pid %d) is gone", worker.executor, worker.host, worker.pid)
            self._queue.recover(worker.executor)
            self._queue.mark_busy()
            with self._database.write() as connection:
                workers.forget(connection, worker.executor)
        if dead or not self._recovered:
            self._fail_abandoned()
        self._recovered = True
        self._own_workspaces().clear_the_dead()

    def _fail_abandoned(self) -> None:
        with self._database.read() as connection:
            unfinished = turns.unfinished(connection)
        for run_id, number in unfinished:
            state = self._queue.gave_up(run_id, number)
            if state is not None:
                failure = (
                    f"{_GIVEN_UP.get(state, f'the queue gave the turn up ({state})')}; continue the run to try again"
                )
                self._execution.settle(run_id, number, TurnOutcome("failed", failure=failure))
