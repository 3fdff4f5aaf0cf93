"""Deletion: removes what a deleted run or organization left in the queue and in a data folder, also after a crash."""

import fcntl
import time
from typing import Final

from service import ids
from service.clock import Clock
from service.execution import trees
from service.execution.queue import QueueHistory
from service.execution.workspace import attempts_at_work
from service.settings import DataFolder
from service.store import deletions
from service.store.database import Database

_PAUSE_S: Final = 0.3


class Deletion:
    """Completes the deletions noted in a database, as far as the queue and one data folder go."""

    def __init__(self, database: Database, folder: DataFolder, clock: Clock) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock

    def complete(self, wait_s: float = 0.0) -> int:
        """Complete every deletion, waiting up to `wait_s` for agents; return how many still work on deleted runs."""
        until = time.monotonic() + wait_s
        self.delete_rows()
        while (held := self.clear_folder()) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        return held

    def delete_rows(self) -> None:
        """Delete the rows of organizations, in batches, so that other writers do not wait long, and queue entries."""
        with self._database.read() as connection:
            pending = deletions.pending_organizations(connection)
        for one in pending:
            is_deleted = False
            while not is_deleted:
                with self._database.write() as connection:
                    if not deletions.delete_runs_of(connection, one, self._clock()):
                        is_deleted = deletions.delete_organization(connection, one)
        with self._database.read() as connection:
            turns = deletions.noted(connection, "turn")
        for start in range(0, len(turns), deletions.BATCH):
            batch = turns[start : start + deletions.BATCH]
            QueueHistory(self._database).remove(batch)
            with self._database.write() as connection:
                deletions.forget_turns(connection, batch)

    def clear_folder(self) -> int:
        """Remove this folder's files of what was deleted; return how many deletions cannot be finished yet."""
        with self._database.read() as connection:
            runs = set(deletions.noted(connection, "run"))
            owners = deletions.noted(connection, "organization")
            pending = deletions.pending_organizations(connection)
        held = {run_id for run_id in attempts_at_work(self._folder) if run_id in runs}
        folders = (self._folder.runs, self._folder.sessions, self._folder.work)
        for path in [path for folder in folders for path in folder.glob("*")]:
            # The name of a workspace is `executor.run-turn-attempt`.
            run_id = path.name.rpartition(".")[2].partition("-")[0]
            if run_id in runs - held:
                _remove(str(path))
        if not held:
            self._remove_mirrors()
            for one in owners:
                for mail in self._folder.outbox.glob(f"{one}.*"):
                    mail.unlink(missing_ok=True)
                _remove(str(self._folder.caches / one))
        return len(held) + len(pending)

    def _remove_mirrors(self) -> None:
        """Remove the mirrors of repositories that no organization has configured or worked on."""
        for git_dir in self._folder.mirrors.glob("*.git"):
            # The lock file stays, empty and named by a hash: another process may wait for it.
            with git_dir.with_suffix(".lock").open("a") as lock, self._database.read() as connection:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if git_dir.stem not in {ids.address_key(url) for url in deletions.addresses(connection)}:
                    _remove(str(git_dir))


def _remove(path: str) -> None:
    # Tried twice, as another process may be removing the same files.
    if not trees.remove(path) and not trees.remove(path):
        raise OSError(f"{path} cannot be removed; remove it by hand, and what is left follows at the next start")
