"""The worker: begins accepted turns and due jobs, executes them, and recovers those of dead workers."""

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from service.execution.disk import shortage
from service.execution.queue import NO_EXECUTOR, DurableEngine
from service.execution.record import InterruptedTurnError, SupersededError
from service.execution.retention import Retention
from service.execution.sandbox import find
from service.execution.turn import PausedTurnError, ShortageError, TurnExecution
from service.execution.workspace import Workspaces
from service.observability.log import bound
from service.store import dispatch, organizations, turns, workers
from service.store.database import DATABASE_DOWN, DatabaseClock
from service.store.workers import Doorbell, Worker
from service.text import storable

_ROUND_S: Final = 1.0
_CLOSING_S: Final = 5.0
_BEATS_IN_TTL: Final = 4
_LATE_S: Final = 3 * _ROUND_S
"""A heartbeat is due once a round, so a shorter pause does not make it irregular, however short the time to live."""
_RECOVERY_PAUSE_S: Final = 2.0
"""How often a worker looks for turns whose worker died."""
_GRACE_ROUNDS: Final = 3
"""How many times a worker's time to live the queue may still take to record an end: 30 s by default."""
_JOBS_AT_ONCE: Final = 4
_ENDPOINTS_AT_ONCE: Final = 2
"""How many of those may deliver events to endpoints, which may be slow and must not delay mails and postings."""
_DISPATCH: Final = 1
"""The number of the task that one worker does at a time: beginning turns and jobs, in one order for all workers."""
SANDBOX_PAUSE_S: Final = 60.0
"""How often a worker without the sandbox that it needs probes for it."""
_logger = logging.getLogger(__name__)


class TurnWorker:
    """Executes turns in this process; call `wake()` when a turn was accepted."""

    def __init__(
        self,
        execution: TurnExecution,
        retention: Retention,
        jobs: Mapping[str, Callable[[str], object]],
        clock: DatabaseClock,
    ) -> None:
        """`jobs`: `mail` sends an invitation, `post` a run's results, `webhook` events to an endpoint; `rotate` tokens.

        `schedule` starts the run of a rule that is due.
        """
        self._execution = execution
        self._database = execution.recorder.database
        self._folder = execution.folder
        self._settings = settings = execution.settings
        self._retention = retention
        self._jobs: dict[str, Callable[[str], object]] = {**jobs, "prune": lambda _: retention.prune_database()}
        self._prune_due = threading.Event()
        self._clock = clock
        executor = secrets.token_hex(12)
        slots = 0 if execution.sandbox.is_missing else settings.concurrency
        self.me = Worker(executor, socket.gethostname(), str(execution.sandbox), os.getpid(), slots, clock(), clock())
        """This worker as other processes see it: with no slots while it may not, or cannot, begin turns."""
        self._probe_due = time.monotonic() + SANDBOX_PAUSE_S
        grace_s = _GRACE_ROUNDS * max(settings.worker_ttl_s, settings.look_s, _RECOVERY_PAUSE_S)
        self._engine = DurableEngine(self._database, executor, settings.concurrency, grace_s)
        self._beat_at = float("-inf")
        self._beating_since = float("-inf")
        """Since when this worker's heartbeat has been regular (monotonic seconds)."""
        self._recovery_due = 0.0
        self._woken = threading.Event()
        self._ended = threading.Event()
        """The event after which no new turns are started."""
        self._gone = threading.Event()
        """The event after which this worker stops its heartbeat."""
        self._threads = [
            threading.Thread(target=self._repeat, args=arguments, name=name, daemon=True)
            for name, arguments in (
                ("dispatch", (self._dispatch, self._woken, settings.look_s, self._ended)),
                ("heartbeat", (self._heartbeat, self._gone, _ROUND_S, self._gone)),
            )
        ]
        self._active = 0
        self._noted = set[str]()
        """The interrupted turns whose runs say why they wait."""
        self._interrupted = 0
        self._counting = threading.Condition()

    def wake(self) -> None:
        """Look for accepted turns and due jobs now instead of at the next round."""
        self._woken.set()

    def start(self) -> None:
        """Connect to the engine and begin to execute; takes about a second, most of it imports."""
        self._workspaces = Workspaces(self._folder, self.me.executor)
        self._heartbeat()
        # Each end frees a slot for another turn.
        self._engine.open(self._execute, self._run_job, self.wake)
        for thread in self._threads:
            thread.start()
        Doorbell(self._database).answer(self.wake, self._ended)
        self._retention.start(self._prune_due.set, self._ended)

    def stop(self) -> None:
        """Start no new turns, wait `drain_s` for those at work, and interrupt the rest.

        Interrupted turns stay in the queue under this worker's name until the next worker recovers them.
        """
        grace_s = self._settings.drain_s
        self._ended.set()
        self._woken.set()
        # Unless the database is down, nothing more begins when this has returned.
        self._threads[0].join(_ROUND_S)
        self._engine.close(int(grace_s) + 1 if self._active else 0, grace_s if self._active else _CLOSING_S)
        self._execution.recorder.stopping.set()
        with self._counting:
            idle = self._counting.wait_for(lambda: self._interrupted >= self._active, _CLOSING_S) and not self._active
        self._gone.set()
        for thread in self._threads:
            thread.join(_CLOSING_S)
        try:
            with self._database.write() as connection:
                workers.sign_off(connection, self.me.executor)
        except SQLAlchemyError:
            _logger.warning(
                "the database is unavailable; the other workers notice after worker_ttl_s that this one is gone"
            )
        if idle:
            self._workspaces.close()
        _logger.info("drained" if idle else "turns were interrupted; the next worker starts them again")

    def _execute(self, run_id: str, number: int) -> None:
        """Execute a turn, unless another worker has to finish it."""
        with self._counting:
            self._active += 1
        try:
            owner = None
            with contextlib.suppress(SQLAlchemyError), self._database.read() as connection:
                owner = organizations.of_run(connection, run_id)
            # Every line of the log names the run, the turn and the organization.
            with bound(run_id=run_id, turn=number, organization=None if owner is None else owner.slug):
                self._execution.execute(run_id, number, self._workspaces)
        except InterruptedTurnError:
            _logger.info("%s turn %d was interrupted; the next worker starts it again", run_id, number)
            with self._counting:
                self._interrupted += 1
                self._counting.notify_all()
                # Held until the process exits: a return would count as the end of the workflow.
                self._counting.wait_for(lambda: False)
        except ShortageError as reason:
            _logger.warning("%s turn %d is returned to the queue: %s", run_id, number, reason)
            text = f"returned to the queue, because its machine lacks a resource: {reason}"
            text = text.replace(f"{self._folder.root}/", "")
            with contextlib.suppress(SQLAlchemyError), self._database.write() as connection:
                turns.note_put_back(connection, run_id, number, storable(text), self._clock())
            self._ended.wait(self._settings.put_back_s)
        except PausedTurnError as reason:
            _logger.info("%s", reason)
        except SupersededError as reason:
            _logger.warning("%s turn %d is not executed again: %s", run_id, number, reason)
        finally:
            with self._counting:
                self._active -= 1

    def _repeat(self, act: Callable[[], None], woken: threading.Event, pause_s: float, end: threading.Event) -> None:
        trouble: object = None
        """The last round's error, which is logged once, since an outage lasts many rounds."""
        while not end.is_set():
            try:
                act()
            except DATABASE_DOWN as error:
                if trouble is not DATABASE_DOWN:
                    _logger.warning("the worker waits for the database: %s", getattr(error, "orig", None) or error)
                trouble = DATABASE_DOWN
            except Exception as error:  # One guard at the boundary of a round: the next one tries again.
                if trouble is not type(error):
                    _logger.exception("the worker's round failed; it is tried again in a moment")
                trouble = type(error)
            else:
                if trouble is not None:
                    _logger.info("the worker's rounds succeed again")
                trouble = None
            woken.wait(pause_s)

    def _run_job(self, name: str, key: str) -> None:
        try:
            self._jobs[name](key)
        except Exception:  # The boundary of a job: it stays due, and begins again after a pause.
            _logger.exception("the job %s %s failed", name, key)
            self._gone.wait(_ROUND_S)

    def _heartbeat(self) -> None:
        """Record that this worker lives, and interrupt cancelled turns, even while it drains or its engine waits."""
        now, ttl_s = time.monotonic(), self._settings.worker_ttl_s
        if now - self._beat_at >= ttl_s / _BEATS_IN_TTL:
            self._record_beat()
            if now - self._beat_at > max(ttl_s / 2, _LATE_S):
                self._beating_since = time.monotonic()
            self._beat_at = now
        self._execution.recorder.watch_over()

    def _dispatch(self) -> None:
        self._woken.clear()
        self._check_machine()
        is_due = time.monotonic() >= self._recovery_due
        if is_due:
            self._workspaces.kill_left_processes()
        with self._database.one_process(_DISPATCH):
            if is_due:
                self._take_over()
            # Before the query: work that finishes in between was still read as due.
            at_work = self._engine.at_work
            free = self.me.concurrency - self._turns_at_work
            with self._database.read() as connection:
                chosen = self._next_turns(connection)[:free] if free > 0 else []
                due = dispatch.due_jobs(connection, self._clock())
            self._begin_turns(chosen)
            self._begin_jobs([name for name in due if name not in at_work])
        if is_due:
            self._workspaces.remove_left_folders()
            self._recovery_due = time.monotonic() + _RECOVERY_PAUSE_S

    def _check_machine(self) -> None:
        """Offer no slots while the sandbox is missing, the disk is nearly full, or the operator wants no turn begun."""
        sandbox = self._execution.sandbox
        if sandbox.is_missing and time.monotonic() >= self._probe_due:
            sandbox = self._execution.sandbox = find(self._settings)
            self._probe_due = time.monotonic() + SANDBOX_PAUSE_S
        short = None if sandbox.is_missing else shortage(self._folder.root, self._settings.agent)
        with self._database.read() as connection:
            is_held = workers.pauses(connection).holds(self.me)
        slots = 0 if sandbox.is_missing or short is not None or is_held else self._settings.concurrency
        before, self.me = self.me, replace(self.me, sandbox=str(sandbox), concurrency=slots)
        if self.me == before:
            return
        if self.me.sandbox != before.sandbox:
            _logger.log(logging.WARNING if sandbox.is_missing else logging.INFO, "sandbox: %s", sandbox)
        elif is_held:
            _logger.info("no turn begins here: maintenance, or this machine is drained")
        elif short is None:
            _logger.info("this worker begins turns again")
        if short is not None:
            _logger.warning("no turn begins here until there is room: the disk is nearly full, %s", short.text)
        self._record_beat()

    def _record_beat(self) -> None:
        with self._database.write() as connection:
            self._clock.sync(connection)
            workers.beat(connection, replace(self.me, at_work=self._turns_at_work), self._clock)

    @property
    def _turns_at_work(self) -> int:
        return sum(name.partition(":")[0] not in self._jobs for name in self._engine.at_work)

    def _next_turns(self, connection: sa.Connection) -> list[dispatch.NextTurn]:
        slots = self.me.concurrency
        # SQLite has one worker at a time; otherwise the slots of all workers count.
        if not self._database.is_sqlite:
            living = workers.heard_within(connection, self._settings.worker_ttl_s, self._clock)
            slots = sum(worker.concurrency for worker in living)
        return dispatch.next_turns(connection, slots, self._settings.organization_slots, self._clock())

    def _begin_turns(self, chosen: list[dispatch.NextTurn]) -> None:
        again = {f"{turn.run_id}:{turn.number}" for turn in chosen if turn.attempt}
        if again:
            # The record of a paused turn may not be closed yet.
            again -= self._engine.in_progress().keys()
            self._engine.forget([*again])
            chosen = [turn for turn in chosen if not turn.attempt or f"{turn.run_id}:{turn.number}" in again]
        if chosen:
            # First, so that its lane is held when it begins; one that does not begin is taken over.
            with self._database.write() as connection:
                turns.mark_dispatched(connection, [(turn.run_id, turn.number) for turn in chosen], self._clock())
        for turn in chosen:
            self._engine.begin(f"{turn.run_id}:{turn.number}")

    def _begin_jobs(self, due: list[str]) -> None:
        """Begin the jobs that no worker has, up to the limit of this one."""
        at_work = self._engine.at_work
        free = _JOBS_AT_ONCE - sum(name.partition(":")[0] in self._jobs for name in at_work)
        if self._prune_due.is_set():
            due = [*({"prune:", "rotate:"} - at_work), *due]
        if free <= 0 or not due:
            return
        in_progress = self._engine.in_progress()
        self._prune_due.clear()
        due = [name for name in due if name not in in_progress]
        endpoints = [name for name in due if name.startswith("webhook:")]
        able = max(0, _ENDPOINTS_AT_ONCE - sum(name.startswith("webhook:") for name in at_work))
        for name in [name for name in due if name not in endpoints[able:]][:free]:
            # An earlier one of the same name may be on record, as ended.
            self._engine.forget([name])
            self._engine.begin(name)

    def _take_over(self) -> None:
        """Begin the turns that have a slot but no living worker, up to this worker's free slots; drop such jobs."""
        # In this order: a starting worker is recorded before it has work, and a turn ends before its worker
        # lets it go.
        in_progress = self._engine.in_progress()
        with self._database.read() as connection:
            workers_known = workers.all_of(connection)
            living = {self.me.executor}
            # SQLite has one worker at a time: every other one on record is dead.
            if not self._database.is_sqlite:
                ttl_s, now = self._settings.worker_ttl_s, time.monotonic()
                # After an outage of the database all heartbeats are old: the others get the time to send one again.
                is_sure = now - self._beat_at <= max(ttl_s / 2, _LATE_S) and now - self._beating_since >= ttl_s
                heard = workers.heard_within(connection, ttl_s, self._clock)
                others = heard if is_sure else [worker for worker in workers_known if worker.seen_at]
                living |= {worker.executor for worker in others}
            under_way = [f"{run_id}:{number}" for run_id, number in turns.dispatched_turns(connection)]
        at_work = self._engine.at_work
        lost = [name for name in under_way if name not in at_work and in_progress.get(name) not in living]
        dropped = [name for name in in_progress if in_progress[name] not in living and name not in under_way]
        for name in lost:
            if self.me.concurrency or name in self._noted:
                continue
            run_id, _, number = name.rpartition(":")
            reason = "it was interrupted, and continues when workers begin turns again"
            with self._database.write() as connection:
                turns.note_put_back(connection, run_id, int(number), reason, self._clock())
            self._noted.add(name)
        lost = lost[: max(0, self.me.concurrency - self._turns_at_work)]
        for name in [*dropped, *lost]:
            if in_progress.get(name) == NO_EXECUTOR:
                _logger.warning("%s had ended here, but the queue could not record it; its slot is free again", name)
        self._engine.forget(dropped)
        # A turn that was put back has ended in the queue; of one that never began it knows nothing.
        put_back = self._engine.ended_among([name for name in lost if name not in in_progress])
        for name in lost:
            if name in put_back:
                _logger.info("%s was put back, and begins again", name)
            elif name not in in_progress:
                _logger.warning("%s had a slot but no worker, and begins here", name)
            self._engine.forget([name])
            self._engine.begin(name)
        for worker in workers_known:
            if worker.executor not in living:
                level = logging.WARNING if worker.seen_at else logging.INFO
                _logger.log(level, "worker %s (%s, pid %d) is gone", worker.executor, worker.host, worker.pid)
                with self._database.write() as connection:
                    workers.forget(connection, worker.executor)
