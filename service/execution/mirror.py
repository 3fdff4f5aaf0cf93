"""Mirrors: one bare copy of each repository, from which every turn's checkout borrows its objects."""

import fcntl
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.execution.git import Git, GitError


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a repository held at one moment."""

    git_dir: Path
    default_branch: str | None
    """None: the repository is empty, or its HEAD points nowhere."""
    branches: dict[str, str]
    """Branch name to commit."""


class Mirror:
    """The mirror of one repository address."""

    def __init__(self, folder: Path, url: str, git: Git) -> None:
        name = hashlib.sha256(url.encode()).hexdigest()[:32]
        self.git_dir = folder / f"{name}.git"
        self._lock_file = folder / f"{name}.lock"
        self._url = url
        self._git = git

    def fetch(self) -> Snapshot:
        """Bring the mirror up to date and return what the repository holds.

        Raises:
            GitError: The repository cannot be read.
        """
        with self._locked():
            try:
                return self._fetch()
            except GitError:
                if not self._break_stale_locks():
                    raise
                return self._fetch()

    def _fetch(self) -> Snapshot:
        # Also where the mirror exists: that repairs one whose first initialization was cut off.
        self._git("init", "--quiet", "--bare", "--", str(self.git_dir))
        listed = self._git("ls-remote", "--symref", "--", self._url, "HEAD", "refs/heads/*", git_dir=self.git_dir)
        if "refs/heads/" in listed:
            fetch = ("fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
            self._git(*fetch, "--", self._url, "+refs/heads/*:refs/heads/*", git_dir=self.git_dir)
        return self._snapshot(listed)

    def _break_stale_locks(self) -> bool:
        """Remove lock files that a power cut left: no git command runs as long as these are old."""
        oldest = time.time() - self._git.timeout_s
        stale = [file for file in self.git_dir.rglob("*.lock") if file.stat().st_mtime < oldest]
        for file in stale:
            file.unlink()
        return bool(stale)

    def _snapshot(self, listed: str) -> Snapshot:
        """Read the branches from the mirror itself: what was fetched, not what was announced a moment before."""
        held = self._git(
            "for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads/", git_dir=self.git_dir
        )
        branches = {}
        for line in held.splitlines() if "refs/heads/" in listed else ():
            commit, _, branch = line.partition(" ")
            branches[branch] = commit
        head = next((line for line in listed.splitlines() if line.startswith("ref: refs/heads/")), None)
        default = None if head is None else head.removeprefix("ref: refs/heads/").partition("\t")[0]
        return Snapshot(self.git_dir, default if default in branches else None, branches)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A file lock holds between threads (each opens its own) and between processes.
        with self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
