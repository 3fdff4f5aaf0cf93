"""Mirrors: one bare copy of each repository, from which every turn's checkout borrows its objects."""

import contextlib
import fcntl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service import ids
from service.execution.git import GitCommandError, GitRunner
from service.store.runs import Run

_KEPT: Final = "refs/fetched/"
_DEFAULT: Final = f"{_KEPT}default"
_BRANCH: Final = f"{_KEPT}branch"
"""The branch of the latest fetch; there is one fetch at a time."""
_MOST_PACKS: Final = 40
"""Beyond it the small ones become one: each fetch brings a pack."""
_GONE: Final = "couldn't find remote ref"


@dataclass(frozen=True, slots=True)
class RepositorySnapshot:
    """A repository's state at one moment."""

    git_dir: Path
    default_branch: str | None
    """None: the repository is empty, or its HEAD points nowhere."""
    branches: dict[str, str]
    """The commits of the turn's branch and of the default branch, by name; without those that do not exist."""

    beside: str | None = None
    """A branch that does not let git make the turn's branch: `feature` next to `feature/x`."""

    @property
    def default(self) -> str | None:
        """The default branch's commit."""
        return self.branches.get(self.default_branch or "")


class RepositoryMirror:
    """The mirror of one repository address."""

    def __init__(self, folder: Path, url: str, git: GitRunner) -> None:
        name = ids.address_key(url)
        self.git_dir = folder / f"{name}.git"
        self._lock_file = folder / f"{name}.lock"
        self._url = url
        self._git = git

    def fetch(self, branch: str, run: Run | None = None) -> RepositorySnapshot:
        """Bring only one branch and the default branch up to date: a repository may have thousands.

        For a run on a pull request's head, that head is fetched instead of the branch.

        Raises:
            GitCommandError: The repository cannot be read, or the head has changed.
        """
        head = None if run is None else run.head_ref
        wanted = head or f"refs/heads/{branch}"
        # A file lock holds between threads (each opens its own) and between processes.
        with self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                snapshot = self._fetch(branch, wanted)
            except GitCommandError as error:
                # A branch may have been deleted between the listing and the fetch.
                if not self._break_stale_locks() and _GONE not in str(error):
                    raise
                snapshot = self._fetch(branch, wanted)
        if run is not None and head is not None and snapshot.branches.get(branch) != run.head_sha:
            raise GitCommandError(f"{head} is no longer at {run.head_sha}, which the run was started for")
        return snapshot

    def fetch_commit(self, sha: str) -> None:
        """Bring one commit, unless it is here.

        Raises:
            GitCommandError: The repository cannot be read, or does not give the commit.
        """
        with self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.git_dir / "HEAD").exists():
                self._git("init", "--quiet", "--bare", "--", str(self.git_dir))
            with contextlib.suppress(GitCommandError):
                self._git("cat-file", "-e", f"{sha}^{{commit}}", git_dir=self.git_dir)
                return
            fetch = ("-c", "fetch.unpackLimit=1", "fetch", "--progress", "--no-tags", "--no-write-fetch-head")
            self._git(*fetch, "--no-auto-maintenance", "--", self._url, f"+{sha}:{_BRANCH}", git_dir=self.git_dir)

    def _fetch(self, branch: str, wanted: str) -> RepositorySnapshot:
        # git writes HEAD late: a mirror without one was cut off while it was made.
        if not (self.git_dir / "HEAD").exists():
            self._git("init", "--quiet", "--bare", "--", str(self.git_dir))
        parts = branch.split("/")
        above = {f"refs/heads/{'/'.join(parts[:count])}" for count in range(1, len(parts))}
        patterns = ("HEAD", wanted, f"refs/heads/{branch}/*", *above)
        listed = self._git("ls-remote", "--symref", "--", self._url, *patterns, git_dir=self.git_dir)
        # A pattern also matches longer names that end with it.
        there = {line.partition("\t")[2] for line in listed.splitlines() if not line.startswith("ref: ")}
        others = sorted(name for name in there if name in above or name.startswith(f"refs/heads/{branch}/"))
        beside = others[0].removeprefix("refs/heads/") if others and wanted not in there else None
        default = default_of(listed) if "HEAD" in there else None
        sources = {branch: wanted} if wanted in there else {}
        kept = dict.fromkeys(sources, _BRANCH)
        if default is not None:
            kept[default], sources[default] = _DEFAULT, f"refs/heads/{default}"
        if kept:
            # A pack, whatever it holds: git shows no progress while it unpacks one large file.
            fetch = ("-c", "fetch.unpackLimit=1", "fetch", "--progress", "--no-tags", "--no-write-fetch-head")
            refs = [f"+{sources[name]}:{ref}" for name, ref in kept.items()]
            self._git(*fetch, "--no-auto-maintenance", "--", self._url, *refs, git_dir=self.git_dir)
            if len(list((self.git_dir / "objects/pack").glob("*.pack"))) > _MOST_PACKS:
                self._git("repack", "-d", "--quiet", "--geometric=2", git_dir=self.git_dir)
        # From the mirror itself: the fetched state, not the one announced a moment before.
        commits = self._git("rev-parse", *kept.values(), git_dir=self.git_dir).splitlines() if kept else ()
        return RepositorySnapshot(self.git_dir, default, dict(zip(kept, commits, strict=True)), beside)

    def _break_stale_locks(self) -> bool:
        """Remove lock files that a power cut left: they are older than any git command may run."""
        oldest = time.time() - self._git.timeout_s
        stale = [file for file in self.git_dir.rglob("*.lock") if file.stat().st_mtime < oldest]
        for file in stale:
            file.unlink()
        return bool(stale)


def borrow(git_dir: Path, mirror: Path, branch: str, refs: Mapping[str, str]) -> None:
    """Make a git-dir that takes its objects from the mirror; by hand, which takes no process.

    Programs write into `hooks` and `info` without making them.
    """
    for folder in ("objects/info", "refs", "hooks", "info"):
        (git_dir / folder).mkdir(parents=True)
    files = {
        "HEAD": f"ref: refs/heads/{branch}\n",
        "config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
        "packed-refs": "".join(f"{sha} {name}\n" for name, sha in refs.items()),
        "objects/info/alternates": f"{mirror / 'objects'}\n",
        # Overrides the repository's attributes, so that files are checked out and committed byte for byte.
        "info/attributes": "* -text -ident -filter -working-tree-encoding\n",
    }
    for name, text in files.items():
        (git_dir / name).write_text(text, "utf-8", "surrogateescape")


def default_of(listed: str) -> str | None:
    """Return the default branch that `git ls-remote --symref` names; None when it names none."""
    mark = "ref: refs/heads/"
    heads = (line.partition("\t") for line in listed.splitlines() if line.startswith(mark))
    return next((target.removeprefix(mark) for target, _, name in heads if name == "HEAD"), None)
