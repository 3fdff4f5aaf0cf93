"""The worker: carries accepted turns into the queue, executes them, and takes over what a dead worker left."""

import logging
import os
import secrets
import socket
import threading
from typing import Any, Final

from service.clock import SECOND_MICROS, Clock
from service.execution.agent import InterruptedTurn
from service.execution.queue import TurnQueue
from service.execution.turn import SupersededError, TurnExecution
from service.execution.workroom import Workroom
from service.settings import DataFolder, Execution
from service.store import turns, workers
from service.store.database import Database
from service.store.doorbell import Doorbell
from service.store.turns import Ending
from service.store.workers import Worker

_ROUND_S: Final = 1.0
_CLOSING_S: Final = 5.0
_BEATS_IN_TTL: Final = 4
_DISPATCH: Final = 1
_log = logging.getLogger(__name__)


class TurnWorker:
    """Executes turns in this process; `wake()` tells it that something was accepted."""

    def __init__(
        self,
        database: Database,
        folder: DataFolder,
        settings: Execution,
        execution: TurnExecution,
        clock: Clock,
        *,
        concurrency: int,
    ) -> None:
        self._database = database
        self._folder = folder
        self._settings = settings
        self._execution = execution
        self._clock = clock
        executor = secrets.token_hex(12)
        sandbox = str(execution.sandbox)
        self.me: Final = Worker(executor, socket.gethostname(), sandbox, os.getpid(), concurrency, clock(), clock())
        """Who this worker is, to the others."""
        self._workroom: Workroom | None = None
        self._queue = TurnQueue(database, executor, concurrency)
        self._doorbell: Doorbell | None = None
        self._beat_due = clock()
        self._recovered = False
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._rounds = threading.Thread(target=self._go_round, name="worker-rounds", daemon=True)
        self._active = 0
        self._parked = 0
        self._counting = threading.Condition()

    def wake(self) -> None:
        """Look for accepted turns now instead of at the next round."""
        self._woken.set()

    def start(self) -> None:
        """Connect to the queue and begin to execute; takes about a second, most of it imports."""
        self._workroom = Workroom(self._folder, self.me.executor)
        self._beat()
        self._queue.open(self._perform, self._settle)
        self._rounds.start()
        if not self._database.is_sqlite:
            self._doorbell = Doorbell(self._database.url, self.wake)

    def stop(self, grace_s: float) -> bool:
        """Take nothing up any more, give the turns at work their grace, interrupt the rest; True when none was left.

        What was interrupted stays in the queue under this worker's name, and whoever comes next takes it over.
        """
        self._ended.set()
        self._woken.set()
        self._rounds.join()
        if self._doorbell is not None:
            self._doorbell.close()
        self._queue.close(int(grace_s) + 1 if self._active else 0, grace_s if self._active else _CLOSING_S)
        self._execution.stopping.set()
        with self._counting:
            idle = self._counting.wait_for(lambda: self._parked >= self._active, _CLOSING_S) and not self._active
        with self._database.write() as connection:
            workers.leave(connection, self.me.executor)
        if idle and self._workroom is not None:
            self._workroom.close()
        return idle

    def _perform(self, run_id: str, number: int) -> dict[str, Any] | None:
        self._queue.stir()
        with self._counting:
            self._active += 1
        try:
            ending = self._execution.perform(run_id, number, self.me.executor, self._place(run_id, number))
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
            self._queue.stir()
            with self._counting:
                self._active -= 1
        return {name: getattr(ending, name) for name in Ending.__slots__}
