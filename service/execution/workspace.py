"""Workspaces: the folders of one attempt at a turn, removed when the attempt ends or its worker dies."""

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from service import trees
from service.execution import processes
from service.settings import DataFolder
from service.text import storable, table

_MAX_RESULT = 256 * 1024
_MAX_SUMMARY = 4000
_MAX_MESSAGE = 20_000
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """The agent's report about its work."""

    summary: str | None = None
    commit_message: str | None = None


class Workspace:
    """The folders of one attempt: the checkout, the history to read, a home, and one for the result."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = root / "tree"
        """The checkout: only changes in it are committed."""
        self.history = root / "history.git"
        """A git-dir for the agent; the service uses nothing in it after the agent has exited."""
        self.home = root / "home"
        self.git_home = root / "git-home"
        """The home folder of the service's git, so that it finds no `.netrc` from the agent."""
        self.temporary = root / "scratch" / "tmp"
        self.shared = root / "scratch" / "shm"
        """The agent's /dev/shm; `temporary` is its /tmp. Both are on the disk, so that one limit covers all files."""
        self.result_file = root / "result" / "result.json"
        self.task_file = root / "task.json"
        self.instructions_file = root / "instructions.txt"
        self.conversation_file = root / "conversation.json"
        self.filter_file = root / "seccomp.bpf"
        self.resolver_file = root / "resolv.conf"
        self.hosts_file = root / "hosts"
        self.sockets = root / "sockets"
        self._nothing = root / "nothing"
        self.sealed = self._nothing / "sealed"
        """Mounted over folders that a program must not write to."""

    def create(self) -> None:
        folders = (self.tree, self.home, self.git_home, self.temporary, self.shared, self.result_file.parent)
        for folder in (*folders, self._nothing / "folder", self.sealed):
            folder.mkdir(mode=0o700, parents=True)
        # Some programs keep this file there, and would fail to create it.
        (self.sealed / ".gitignore").touch()

    def nothing_like(self, name: str) -> Path:
        """Return an empty file or folder to mount over one of the checkout that the agent must not read.

        Not a device, which could not be opened there: programs exit at files that they cannot read or parse.
        """
        if (self.tree / name).is_dir():
            return self._nothing / "folder"
        # `{}` is an empty object in YAML as well; some programs reject an empty file.
        empty = self._nothing / ("file.json" if name.endswith((".json", ".jsonc", ".yml", ".yaml")) else "file")
        empty.write_text("{}\n" if empty.suffix else "", "utf-8")
        return empty

    def result(self) -> Result:
        """Read the agent's report on its work; nothing in it can fail the turn."""
        try:
            document = table(json.loads(trees.read(self.result_file, _MAX_RESULT)))
        except (OSError, ValueError, RecursionError):
            return Result()
        longest = {"summary": _MAX_SUMMARY, "commit_message": _MAX_MESSAGE}
        texts = {name: document[name] for name in longest if isinstance(document.get(name), str)}
        return Result(**{name: storable(text).strip()[: longest[name]] or None for name, text in texts.items()})

    def report(self, summary: str) -> None:
        """Write the result file for an agent whose output held a summary, unless it wrote the file itself."""
        with contextlib.suppress(FileExistsError), self.result_file.open("x", encoding="utf-8") as file:
            json.dump({"summary": summary}, file)

    def remove(self) -> None:
        """Delete the workspace if it was created, including folders that the agent locked."""
        if not trees.remove(self.root):
            _logger.warning("%s cannot be removed; remove it by hand", self.root)


class Workspaces:
    """The workspaces, named `EXECUTOR.ATTEMPT`, of one worker process, which holds a lock for as long as it lives."""

    def __init__(self, folder: DataFolder, executor: str) -> None:
        self._work = folder.work
        self._locks = folder.workers
        self.executor = executor
        lock_file = self._locks / executor
        while True:
            self._lock: IO[Any] = lock_file.open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if lock_file.stat().st_ino == os.fstat(self._lock.fileno()).st_ino:
                    break
            # Another worker mistook the new lock file for a dead worker's and removed it.
            self._lock.close()

    def close(self) -> None:
        (self._locks / self.executor).unlink(missing_ok=True)
        self._lock.close()

    def kill_left_processes(self) -> None:
        for name, _ in self._dead():
            self._kill(f"{name}.")

    def remove_left_folders(self) -> None:
        for name, lock_file in self._dead():
            self._clear(f"{name}.")
            lock_file.unlink(missing_ok=True)
        living = {file.name for file in self._locks.iterdir()}
        for left in self._work.iterdir():
            if left.name.partition(".")[0] not in living:
                self._clear(left.name)

    def _dead(self) -> Iterator[tuple[str, Path]]:
        """Yield the name and lock file of each dead worker; the lock is held until the next one is asked for."""
        for lock_file in self._locks.iterdir():
            if lock_file.name != self.executor:
                with lock_file.open("a") as lock:
                    if _try_lock(lock):
                        yield lock_file.name, lock_file

    def _kill(self, prefix: str) -> None:
        # An agent's environment names its result file in the workspace, git's names its home there.
        marks = [f"{name}={self._work}{os.sep}{prefix}" for name in ("RUNWARDEN_RESULT", "HOME")]
        killed = sum(map(processes.kill_marked, marks))
        if killed:
            _logger.warning("killed %d processes that a killed worker had left", killed)

    def _clear(self, prefix: str) -> None:
        self._kill(prefix)
        for left in self._work.glob(f"{prefix}*"):
            Workspace(left).remove()


def attempts_at_work(folder: DataFolder) -> list[str]:
    """Return the run of each workspace that a living worker on this data folder has."""
    living = set()
    for lock_file in folder.workers.iterdir():
        with contextlib.suppress(FileNotFoundError), lock_file.open("r") as lock:
            if not _try_lock(lock):
                living.add(lock_file.name)
    names = [path.name.partition(".") for path in folder.work.glob("*")]
    return [rest.partition("-")[0] for executor, _, rest in names if executor in living]


def _try_lock(lock: IO[Any]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
