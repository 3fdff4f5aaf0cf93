"""Branches that the service made for runs: those long merged or abandoned are removed from their repositories."""

import logging
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from service.clock import DAY_MICROS
from service.execution.git import Git, GitError, login
from service.execution.mirror import Mirror
from service.hosts.http import token_for
from service.reference import MADE_BRANCHES, without_login
from service.settings import DataFolder
from service.store import organizations, repositories, runs
from service.store.database import Database
from service.store.runs import Run

_AGAIN_MICROS: Final = DAY_MICROS
"""How far back branches are checked again that could not be reached."""
_REMOVAL: Final = 3
"""The task that one worker at a time does for all."""
_logger = logging.getLogger(__name__)


class StaleBranches:
    """Removes branches of runs that ended long ago, if the service made them and no one else wrote to them."""

    def __init__(self, database: Database, folder: DataFolder, git_timeout_s: float) -> None:
        self._database = database
        self._folder = folder
        self._git_timeout_s = git_timeout_s
        self._done_until = 0
        """Up to this end of a run branches were checked since this worker started."""

    def remove(self, before: int, stopping: threading.Event) -> int:
        """Remove branches whose last run ended before an instant (microseconds); return how many."""
        removed = 0
        with self._database.sole(_REMOVAL) as mine:
            for group in self._by_repository(before) if mine else ():
                if stopping.is_set():
                    return removed
                try:
                    removed += self._of_repository(group)
                except (GitError, OSError) as error:
                    _logger.warning("branches stay in %s: %s", without_login(group[0].url), error)
            self._done_until = before if mine else self._done_until
        return removed

    def _by_repository(self, before: int) -> Iterator[list[Run]]:
        with self._database.read() as connection:
            owners = organizations.ids_of_all(connection)
        for owner in owners:
            groups: dict[str, list[Run]] = defaultdict(list)
            with self._database.read() as connection:
                for run in runs.on_own_branches(connection, owner, self._done_until - _AGAIN_MICROS, before):
                    groups[run.url].append(run)
            yield from groups.values()

    def _of_repository(self, group: list[Run]) -> int:
        one = group[0]
        with self._database.read() as connection:
            token = token_for(connection, one.organization_id, one.platform, one.url)
            configured = repositories.by_path(connection, one.organization_id, one.platform, one.path)
        patterns = None if configured is None else configured.protected
        with tempfile.TemporaryDirectory(prefix="runwarden-branches-") as home:
            git = Git(Path(home), self._git_timeout_s, login(one.url, token))
            listed = git("ls-remote", "--", one.url, f"refs/heads/{MADE_BRANCHES}*")
            there = {line.partition("\trefs/heads/")[2] for line in listed.splitlines()}
            return sum(self._remove_one(git, run, patterns) for run in group if run.branch in there)

    def _remove_one(self, git: Git, run: Run, patterns: tuple[str, ...] | None) -> bool:
        """Remove a branch unless it is protected or holds commits of others that the default branch has not."""
        snapshot = Mirror(self._folder.mirrors, run.url, git).fetch(run.branch)
        head, default = snapshot.branches.get(run.branch), snapshot.default_branch
        if head is None or default is None or repositories.is_protected(run.branch, default, patterns):
            return False
        with self._database.read() as connection:
            ours = runs.commits_on(connection, run)
            in_use = runs.is_worked_on(connection, run.url, run.branch)
        most = f"--max-count={len(ours) + 1}"
        ahead = git("rev-list", most, head, f"^{snapshot.branches[default]}", "--", git_dir=snapshot.git_dir).split()
        if in_use or not ours.issuperset(ahead):
            return False
        ref = f"refs/heads/{run.branch}"
        # Only as it was looked at: a commit that comes now keeps the branch.
        lease = f"--force-with-lease={ref}:{head}"
        git("push", "--quiet", "--no-verify", lease, "--", run.url, f":{ref}", git_dir=snapshot.git_dir)
        _logger.info("removed the branch %s of %s from %s", run.branch, run.id, without_login(run.url))
        return True
