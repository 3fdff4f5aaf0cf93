"""Retention and deletion: remove old and deleted data, but nothing that the API shows or a run needs."""

import fcntl
import logging
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from service import ids, trees
from service.clock import DAY_MICROS, SECOND_MICROS, Clock
from service.execution.mirror import RepositoryMirror
from service.execution.queue import forget_ended, forget_turns
from service.execution.workspace import attempts_at_work
from service.git import GitCommandError, GitRunner
from service.hosts.tokens import HostTokens
from service.reference import MADE_BRANCHES, without_login
from service.settings import DataFolder, Settings
from service.store import deletions, events, hosts, organizations, repositories, runs, turn_files, turns
from service.store.database import Database
from service.store.rows import delete
from service.store.runs import Run
from service.store.schema import audit, deliveries

_DELETION_PAUSE_S: Final = 0.3
_BATCH: Final = 500
"""Rows removed in one transaction, so that other writers do not wait long."""
_PAUSE_S: Final = 3600.0
_REMEMBERED_DAYS: Final = 30
"""How long each machine looks for files of deleted runs in its data folder."""
_HELD_PAUSE_S: Final = 5.0
"""How soon a deletion that waits for an agent, or for another worker, is tried again."""
_AGAIN_MICROS: Final = DAY_MICROS
"""How far back branches are checked again, as a repository may have been unreachable."""
_logger = logging.getLogger(__name__)


def complete_deletions(database: Database, data: DataFolder, clock: Clock, wait_s: float = 0.0) -> int:
    """Complete the deletions noted in a database, as far as the queue and one data folder go.

    Wait up to `wait_s` for agents; return how many still work on deleted runs.
    """
    until = time.monotonic() + wait_s
    delete_rows(database, clock)
    while (waiting := clear_folder(database, data)) and time.monotonic() < until:
        time.sleep(_DELETION_PAUSE_S)
    return waiting


def delete_rows(database: Database, clock: Clock) -> None:
    """Delete the rows of organizations, in batches, so that other writers do not wait long, and queue entries."""
    with database.read() as connection:
        pending = deletions.pending_organizations(connection)
    for organization_id in pending:
        is_deleted = False
        while not is_deleted:
            with database.write() as connection:
                is_deleted = deletions.delete_organization(connection, organization_id, clock())
    with database.read() as connection:
        turns = deletions.noted_deletions(connection, "turn")
    for start in range(0, len(turns), deletions.BATCH):
        batch = turns[start : start + deletions.BATCH]
        forget_turns(database, batch)
        with database.write() as connection:
            deletions.forget_turns(connection, batch)


def clear_folder(database: Database, data: DataFolder) -> int:
    """Remove the files of deleted runs and organizations; return how many deletions cannot be finished yet."""
    with database.read() as connection:
        runs = set(deletions.noted_deletions(connection, "run"))
        owners = deletions.noted_deletions(connection, "organization")
        pending = deletions.pending_organizations(connection)
    at_work = {run_id for run_id in attempts_at_work(data) if run_id in runs}
    for path in (*data.runs.glob("*"), *data.sessions.glob("*"), *data.work.glob("*")):
        # The name of a workspace is `executor.run-turn-attempt`.
        run_id = path.name.rpartition(".")[2].partition("-")[0]
        if run_id in runs - at_work:
            _remove(path)
    if not at_work:
        # Mirrors of repositories that no organization has configured or worked on.
        for git_dir in data.mirrors.glob("*.git"):
            # The lock file stays, empty and named by a hash: another process may wait for it.
            with git_dir.with_suffix(".lock").open("a") as lock, database.read() as connection:
                fcntl.flock(lock, fcntl.LOCK_EX)
                keys = {ids.address_key(url) for url in deletions.addresses(connection)}
                if git_dir.name.partition(".")[0] not in keys:
                    _remove(git_dir)
        for owner in owners:
            for mail in data.outbox.glob(f"{owner}.*"):
                mail.unlink(missing_ok=True)
            _remove(data.caches / owner)
    return len(at_work) + len(pending)


def _remove(path: Path) -> None:
    # Try twice, since another process may be removing the same files.
    if not trees.remove(path) and not trees.remove(path):
        raise OSError(f"{path} cannot be removed; remove it by hand, and the rest is removed at the next start")


def prune_stored_files(
    database: Database,
    before: int,
    tables: tuple[sa.Table, ...] = turn_files.FILES + turn_files.ARTIFACTS,
    *,
    dry_run: bool = False,
) -> int:
    """Remove from the database the files of turns that ended before an instant (microseconds); return how many."""
    if dry_run:
        with database.read() as connection:
            return turn_files.count_ended(connection, before, tables)
    removed, batch = 0, _BATCH
    while batch >= _BATCH:
        with database.write() as connection:
            batch = turn_files.remove_ended(connection, before, tables, _BATCH)
        removed += batch
    return removed


def prune_files(database: Database, data: DataFolder, before: int, *, dry_run: bool = False) -> tuple[int, int]:
    """Remove from the data folder logs and diffs last written before; return how many, and their bytes."""
    number = size = 0
    with database.read() as connection:
        open_runs = turns.open_runs(connection)
    # Ids begin with their time: a turn accepted later cannot have ended earlier.
    end = f"run_{ids.ulid(max(0, before), lambda _: 0)}"
    for folder in list(data.runs.iterdir()):
        if folder.name >= end or folder.name in open_runs:
            continue
        for file in list(folder.iterdir()):
            if file.stat().st_mtime * SECOND_MICROS < before:
                number += 1
                size += file.stat().st_size
                if not dry_run:
                    file.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    return number, size


def prune_sessions(database: Database, data: DataFolder, before: int) -> None:
    """Remove the home folders that agents keep for runs whose last turn began before."""
    with database.read() as connection:
        open_runs = turns.open_runs(connection)
    for session in data.sessions.glob("*"):
        if session.name not in open_runs and session.stat().st_mtime * SECOND_MICROS < before:
            trees.remove(session)


class Retention:
    """Prunes according to the settings: the database in a job of one worker, and each data folder in a thread."""

    def __init__(
        self, database: Database, tokens: HostTokens, folder: DataFolder, settings: Settings, clock: Clock
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._settings = settings.retention
        self._clock = clock
        self._folder = folder
        self._git_timeout_s = settings.execution.git_timeout_s
        self._branches_until = 0
        """This worker has checked the branches of runs that ended before this instant."""

    def start(self, ask_for_database: Callable[[], None], end: threading.Event) -> None:
        """Prune now and every hour until `end`; `ask_for_database` has one worker call `prune_database`."""

        def run() -> None:
            waiting = 0
            while True:
                try:
                    ask_for_database()
                    prune_sessions(self._database, self._folder, self._before(self._settings.sessions_days))
                    if self._settings.logs_days is not None:
                        prune_files(self._database, self._folder, self._before(self._settings.logs_days))
                    # How many deletions could not be finished yet.
                    waiting = clear_folder(self._database, self._folder)
                except Exception:  # The boundary: an outage of the database must not stop pruning forever.
                    _logger.exception("pruning failed; the next try is in an hour")
                if end.wait(_HELD_PAUSE_S if waiting else _PAUSE_S):
                    return

        # A daemon: pruning can be cut off anywhere and continues at the next start.
        threading.Thread(target=run, name="retention", daemon=True).start()

    def prune_database(self) -> tuple[int, int]:
        """Prune the database and the repositories, and finish deletions of organizations.

        Returns the numbers of queue entries and of stored files that were removed.
        """
        delete_rows(self._database, self._clock)
        settings = self._settings
        queue = forget_ended(self._database, self._before(settings.queue_days))
        kinds = ((settings.logs_days, turn_files.FILES), (settings.artifacts_days, turn_files.ARTIFACTS))
        stored = sum(prune_stored_files(self._database, self._before(days), tables) for days, tables in kinds if days)
        with self._database.write() as connection:
            delete(connection, deliveries, deliveries.c.received_at < self._before(settings.deliveries_days))
            events.remove(connection, self._before(settings.events_days))
            deletions.forget(connection, self._before(_REMEMBERED_DAYS))
            if settings.audit_days is not None:
                delete(connection, audit, audit.c.at < self._before(settings.audit_days))
        if settings.branches_days is not None:
            self.remove_branches(self._before(settings.branches_days))
        return queue, stored

    def remove_branches(self, before: int) -> None:
        """Remove branches whose last run ended before an instant (microseconds).

        Only those that the service made, and to which only the service pushed.
        """
        since = self._branches_until - _AGAIN_MICROS
        groups = defaultdict[tuple[str, str], list[Run]](list)
        with self._database.read() as connection:
            for owner in organizations.all_of(connection):
                for run in runs.on_own_branches(connection, owner.id, since, before):
                    groups[owner.id, run.url].append(run)
        for (_, url), group in groups.items():
            try:
                self._remove_branches_of(group)
            except (GitCommandError, OSError) as error:
                _logger.warning("branches stay in %s: %s", without_login(url), error)
        self._branches_until = before

    def _remove_branches_of(self, group: list[Run]) -> None:
        """Remove branches of one repository, without protected ones and those with commits of others not merged."""
        first = group[0]
        with self._database.read() as connection:
            host = hosts.at(connection, first.organization_id, first.platform, first.url)
            configured = repositories.by_path(connection, first.organization_id, first.platform, first.path)
        patterns = None if configured is None else configured.protected
        part = None
        if configured is not None and configured.setup is not None:
            part = configured.setup.part
        with tempfile.TemporaryDirectory(prefix="runwarden-branches-") as home:
            login = partial(self._tokens.at, host)
            git = GitRunner(Path(home), self._git_timeout_s, url=first.url, token_of=login)
            output = git("ls-remote", "--", first.url, f"refs/heads/{MADE_BRANCHES}*")
            branches = {line.partition("\trefs/heads/")[2] for line in output.splitlines()}
            mirror = RepositoryMirror(self._folder.mirrors, git, part)
            for run in (run for run in group if run.branch in branches):
                snapshot = mirror.fetch(run.branch)
                head = snapshot.branches.get(run.branch)
                default = snapshot.default_branch
                if head is None or default is None or repositories.is_protected(run.branch, default, patterns):
                    continue
                with self._database.read() as connection:
                    ours = runs.commits_on(connection, run)
                    in_use = runs.is_worked_on(connection, run.url, run.branch)
                range_ = (f"--max-count={len(ours) + 1}", head, f"^{snapshot.branches[default]}", "--")
                ahead = mirror.git("rev-list", *range_).split()
                if in_use or not ours.issuperset(ahead):
                    continue
                ref = f"refs/heads/{run.branch}"
                # The lease keeps the branch if a commit was pushed to it just now.
                lease = f"--force-with-lease={ref}:{head}"
                mirror.git("push", "--quiet", "--no-verify", lease, "--", run.url, f":{ref}")
                _logger.info("removed the branch %s of %s from %s", run.branch, run.id, without_login(run.url))

    def _before(self, days: float) -> int:
        return self._clock() - int(days * DAY_MICROS)
