"""Workrooms: each worker's own places under the data folder, known to be free as soon as their worker is dead."""

import fcntl
import logging
import os
import shutil
from pathlib import Path
from typing import IO, Any

from service.execution import processes
from service.settings import DataFolder

_log = logging.getLogger(__name__)


class Workspaces:
    """The workspaces of one worker process; its lock is held until the process ends, however it ends."""

    def __init__(self, folder: DataFolder, executor: str) -> None:
        self._work = folder.work
        self._locks = folder.workers
        self.executor = executor
        """Whose it is."""
        self._lock = _hold(self._locks / executor)

    def place(self, turn: str) -> Path:
        """Return where the workspace of an attempt goes; it does not exist yet."""
        return self._work / f"{self.executor}.{turn}"

    def close(self) -> None:
        """Give the workroom up."""
        (self._locks / self.executor).unlink(missing_ok=True)
        self._lock.close()

    def clear_the_dead(self) -> None:
        """End the processes and remove the workspaces of workers on this data folder that are no more."""
        for lock_file in self._locks.iterdir():
            if lock_file.name == self.executor:
                continue
            with lock_file.open("a") as lock:
                if _try_lock(lock):
                    self._clear(f"{lock_file.name}.")
                    lock_file.unlink(missing_ok=True)
        living = {file.name for file in self._locks.iterdir()}
        for left in self._work.iterdir():
            if left.name.partition(".")[0] not in living:
                self._clear(left.name)

    def _clear(self, prefix: str) -> None:
        # Two marks: an agent has its result file and its home there, git has its home there.
        marks = [f"{name}={self._work}{os.sep}{prefix}" for name in ("RUNWARDEN_RESULT", "HOME")]
        killed = sum(map(processes.kill_marked, marks))
        if killed:
            _log.warning("ended %d processes that a killed worker had left", killed)
        for left in self._work.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)


def _hold(path: Path) -> IO[Any]:
    while True:
        lock = path.open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                return lock
        except FileNotFoundError:
            pass
        # Somebody took the newborn lock for a dead worker's, and removed it.
        lock.close()


def _try_lock(lock: IO[Any]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
