"""Deletion: removes what a deleted run or organization left in the queue and in data folders, also after a crash."""

import fcntl
import time
from collections.abc import Sequence
from typing import Final

from service.clock import DAY_MICROS, SECOND_MICROS, Clock
from service.execution import trees
from service.execution.queue import QueueEntry, QueueHistory
from service.settings import DataFolder
from service.store import deletions, workers
from service.store.database import Database

_BATCH: Final = 500
_PAUSE_S: Final = 0.3
_REMEMBERED_DAYS: Final = 30
"""How long other machines look for copies in their data folders (PostgreSQL)."""


class Deletion:
    """Completes the deletions noted in a database, as far as the queue and one data folder go."""

    def __init__(self, database: Database, folder: DataFolder, worker_ttl_s: float, clock: Clock) -> None:
        self._database = database
        self._folder = folder
        self._ttl_micros = int(worker_ttl_s * SECOND_MICROS)
        self._clock = clock

    def complete(self, wait_s: float = 0.0) -> int:
        """Complete pending deletions, waiting up to `wait_s` for workers; return how many turns they still hold."""
        until = time.monotonic() + wait_s
        self._delete_rows()
        while (held := self._once()) and time.monotonic() < until:
            time.sleep(_PAUSE_S)
        return held

    def remove_copies(self) -> None:
        """Remove this folder's copies of what was deleted on other machines, and forget old deletions."""
        with self._database.read() as connection:
            gone = {
                kind: deletions.noted(connection, kind, pending=False) for kind in ("run", "mirror", "organization")
            }
        # The folder has fewer names than there can be deletions.
        here = {path.name for folder in (self._folder.runs, self._folder.sessions) for path in folder.glob("*")}
        self._remove_runs([run_id for run_id in gone["run"] if run_id in here])
        self._remove_mirrors(gone["mirror"])
        self._remove_kept(gone["organization"])
        with self._database.write() as connection:
            deletions.forget(connection, self._clock() - _REMEMBERED_DAYS * DAY_MICROS)

    def _delete_rows(self) -> None:
        """Delete the rows of organizations: in batches, so that other writers do not wait long."""
        with self._database.read() as connection:
            pending = deletions.noted(connection, "organization")
        for one in pending:
            is_deleted = False
            while not is_deleted:
                with self._database.write() as connection:
                    if not deletions.delete_runs_of(connection, one, self._clock()):
                        is_deleted = deletions.delete_organization(connection, one, self._clock())

    def _once(self) -> int:
        held = self._forget_turns()
        at_work = {entry.run_id for entry in held}
        with self._database.read() as connection:
            run_ids = [one for one in deletions.noted(connection, "run") if one not in at_work]
            mirrors = [] if held else deletions.noted(connection, "mirror")
            owners = [] if held else deletions.noted(connection, "organization")
        self._remove_runs(run_ids)
        self._remove_mirrors(mirrors)
        self._remove_kept(owners)
        for start in range(0, len(run_ids), _BATCH):
            self._note("run", run_ids[start : start + _BATCH])
        self._note("mirror", mirrors)
        self._note("organization", owners)
        return len(held)

    def _forget_turns(self) -> list[QueueEntry]:
        """Remove the queue's entries of deleted turns; return those that workers still hold."""
        with self._database.read() as connection:
            pending = deletions.noted(connection, "turn")
            living = {one.executor for one in workers.heard_within(connection, self._ttl_micros, self._clock)}
        held: list[QueueEntry] = []
        with QueueHistory(self._database) as history:
            for start in range(0, len(pending), _BATCH):
                batch = pending[start : start + _BATCH]
                found = history.of(batch)
                at_work = [one for one in found if _is_held(one, living)]
                history.forget([one for one in found if one not in at_work])
                self._note("turn", list({*batch} - {one.workflow_id for one in at_work}))
                held += at_work
        return held

    def _note(self, kind: deletions.Kind, done: Sequence[str]) -> None:
        if done:
            with self._database.write() as connection:
                deletions.complete(connection, kind, done, self._clock())

    def _remove_runs(self, run_ids: Sequence[str]) -> None:
        gone = frozenset(run_ids)
        for run_id in gone:
            _remove(str(self._folder.runs / run_id))
            _remove(str(self._folder.sessions / run_id))
        for left in self._folder.work.iterdir() if gone else ():
            # The name is `executor.run-turn-attempt`; no worker uses it any longer.
            if left.name.partition(".")[2].split("-")[0] in gone:
                _remove(str(left))

    def _remove_mirrors(self, names: Sequence[str]) -> None:
        for name in names:
            git_dir = self._folder.mirrors / f"{name}.git"
            if not git_dir.exists():
                continue
            # The lock file stays, empty and named by a hash: another process may wait for it.
            with (self._folder.mirrors / f"{name}.lock").open("a") as lock, self._database.read() as connection:
                fcntl.flock(lock, fcntl.LOCK_EX)
                born = (git_dir / "HEAD").stat().st_mtime if (git_dir / "HEAD").exists() else 0
                if born * SECOND_MICROS <= deletions.requested_at(connection, "mirror", name):
                    _remove(str(git_dir))

    def _remove_kept(self, organization_ids: Sequence[str]) -> None:
        for one in organization_ids:
            for mail in self._folder.outbox.glob(f"{one}.*"):
                mail.unlink(missing_ok=True)
            _remove(str(self._folder.caches / one))


def _is_held(entry: QueueEntry, living: set[str]) -> bool:
    """Whether a living worker executes a turn or is about to; it will find the turn deleted and store nothing."""
    return entry.is_open and (bool(living) if entry.executor is None else entry.executor in living)


def _remove(path: str) -> None:
    # Tried twice, as another process may be removing the same files.
    if not trees.remove(path) and not trees.remove(path):
        raise OSError(f"{path} cannot be removed; remove it by hand, and what is left follows at the next start")
