"""Mirrors: one bare copy of each repository, from which every turn's checkout borrows its objects."""

import contextlib
import fcntl
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service import ids
from service.execution.commits import changed_between
from service.git import GitCommandError, GitRunner
from service.store.runs import Run

_KEPT: Final = "refs/fetched/"
_DEFAULT: Final = f"{_KEPT}default"
_BRANCH: Final = f"{_KEPT}branch"
"""The branch of the latest fetch; there is one fetch at a time."""
_MAX_PACKS: Final = 40
"""Beyond it the small ones become one: each fetch brings a pack."""
_FIRST_BATCH: Final = 256
_MAX_BATCH: Final = 4096
_BATCH_S: Final = 20.0
"""How long the fetch of a batch of contents should take: a connection that breaks costs one of them."""
_PROMISOR: Final = """[remote "not-fetched"]
\tpromisor = true
\turl = /the contents of earlier versions and of files outside "sparse" are not fetched
[diff]
\trenames = false
"""
"""The configuration of the agent's git, which reports this address if it needs a content that the mirror lacks."""


@dataclass(frozen=True, slots=True)
class RepositorySnapshot:
    """A repository's state at one moment."""

    default_branch: str | None
    """The default branch's name; None: the repository is empty, or its HEAD points nowhere."""
    branches: dict[str, str]
    """The commits of the turn's branch and of the default branch, by name; without those that do not exist."""
    beside: str | None = None
    """A branch that does not let git make the turn's branch: `feature` next to `feature/x`."""

    @property
    def default(self) -> str | None:
        """The commit of the default branch; None if there is no such commit."""
        return self.branches.get(self.default_branch or "")


class RepositoryMirror:
    """The mirror of one repository address."""

    def __init__(self, folder: Path, git: GitRunner, part: Sequence[str] | None = None) -> None:
        """`git`: logs in at the repository's address.

        `part`: mirror the history without contents; `fill` adds those of these paths, or with none of all.
        """
        name = ids.address_key(git.url)
        self.git_dir = folder / (f"{name}.git" if part is None else f"{name}.part.git")
        self._lock_file = self.git_dir.with_suffix(".lock")
        self.git = git.inside(self.git_dir)
        self.part = part
        self._source: tuple[tuple[str, ...], str] = ((), git.url)
        if part is not None:
            # Only the commands that fetch know of the host: no other may fetch contents one by one.
            config = {"url": git.url, "promisor": "true", "partialclonefilter": "blob:none"}
            self._source = tuple(word for k, v in config.items() for word in ("-c", f"remote.origin.{k}={v}")), "origin"

    def fetch(self, branch: str, run: Run | None = None) -> RepositorySnapshot:
        """Update only one branch and the default branch: a repository may have thousands.

        For a run on a pull request's head, that head is fetched instead of the branch.

        Raises:
            GitCommandError: The repository cannot be read, or the head has changed.
        """
        head = None if run is None else run.head_ref
        ref = head or f"refs/heads/{branch}"
        # A file lock holds between threads (each opens its own) and between processes.
        with self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                snapshot = self._fetch(branch, ref)
            except GitCommandError as error:
                # Lock files left by a power cut are older than the longest git command.
                oldest = time.time() - self.git.timeout_s
                stale = [file for file in self.git_dir.rglob("*.lock") if file.stat().st_mtime < oldest]
                for file in stale:
                    file.unlink()
                # A branch may have been deleted between the listing and the fetch.
                if not stale and "couldn't find remote ref" not in str(error):
                    raise
                snapshot = self._fetch(branch, ref)
        if run is not None and head is not None and snapshot.branches.get(branch) != run.head_sha:
            raise GitCommandError(f"{head} is no longer at {run.head_sha}, which the run was started for")
        return snapshot

    def fetch_commit(self, sha: str) -> None:
        """Fetch one commit, unless it is already here.

        Raises:
            GitCommandError: The repository cannot be read, or does not give the commit.
        """
        with self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.git_dir / "HEAD").exists():
                self.git.inside(None)("init", "--quiet", "--bare", "--", str(self.git_dir))
            with contextlib.suppress(GitCommandError):
                self.git("cat-file", "-e", f"{sha}^{{commit}}")
                return
            self._bring(f"+{sha}:{_BRANCH}")

    def fill(self, snapshot: RepositorySnapshot, branch: str, bases: Iterable[str | None] = ()) -> None:
        """Fetch the contents that a turn on the branch reads, in batches, into a partial mirror.

        In addition to its checkout, they are those that differ from the default branch and from `bases`, commits that
        changes were made on, for merges and patches.

        Raises:
            GitCommandError: The repository cannot be read; batches that are here stay.
        """
        base = snapshot.branches.get(branch) or snapshot.default
        if self.part is None or base is None:
            return
        wanted = dict[str, None]()
        for entry in self.git("ls-tree", "-r", "-z", base).split("\0"):
            about, _, path = entry.partition("\t")
            is_read = path.rpartition("/")[2] in {".gitattributes", ".gitmodules"}
            if " blob " in about and (is_read or lies_in(path, self.part)):
                wanted[about.rpartition(" ")[2]] = None
        for other in {*bases, snapshot.default} - {None, base}:
            # The commits may have no common history, or a base may be gone.
            with contextlib.suppress(GitCommandError):
                fork = self.git("merge-base", base, str(other))
                for end in (base, str(other)):
                    wanted |= dict.fromkeys(changed_between(self.git, fork, end).blobs)
        wanted.pop("0" * 40, None)
        objects, check = "\n".join(wanted), "--batch-check=%(objectname)"
        with self._lock_file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            printed = self.git.feed(objects, "cat-file", check).splitlines()
            missing = [line.partition(" ")[0] for line in printed if line.endswith(" missing")]
            done, count = 0, _FIRST_BATCH
            while done < len(missing):
                begun = time.monotonic()
                self._bring(*missing[done : done + count])
                done = min(done + count, len(missing))
                self.git.progress(f"{100 * done // len(missing)}% of the contents of {len(missing)} files")
                in_time = int(count * _BATCH_S / (time.monotonic() - begun + 0.1))
                count = max(1, min(in_time, 4 * count, _MAX_BATCH))
            self._join_packs()

    def _bring(self, *refspecs: str) -> None:
        """Fetch refs or objects, as a pack, whatever it holds: git shows no progress while it unpacks a large file."""
        config, source = self._source
        options = ("--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--")
        self.git(*config, "-c", "fetch.unpackLimit=1", "fetch", *options, source, *refspecs)

    def _join_packs(self) -> None:
        folder = self.git_dir / "objects/pack"
        if len(list(folder.glob("*.pack"))) > _MAX_PACKS:
            self.git("repack", "-d", "--quiet", "--geometric=2")
            if self.part is not None:
                # All objects are the host's, but git does not mark the pack that it made of several.
                for pack in folder.glob("*.pack"):
                    pack.with_suffix(".promisor").touch()

    def _fetch(self, branch: str, wanted: str) -> RepositorySnapshot:
        # git writes HEAD late: a mirror without one was cut off while it was made.
        if not (self.git_dir / "HEAD").exists():
            self.git.inside(None)("init", "--quiet", "--bare", "--", str(self.git_dir))
        parts = branch.split("/")
        above = {f"refs/heads/{'/'.join(parts[:count])}" for count in range(1, len(parts))}
        patterns = ("HEAD", wanted, f"refs/heads/{branch}/*", *above)
        output = self.git("ls-remote", "--symref", "--", self.git.url, *patterns)
        # A pattern also matches longer names that end with it.
        lines = (line.partition("\t") for line in output.splitlines() if not line.startswith("ref: "))
        commit_of = {name: sha for sha, _, name in lines}
        others = sorted(name for name in commit_of if name in above or name.startswith(f"refs/heads/{branch}/"))
        beside = None
        if others and wanted not in commit_of:
            beside = others[0].removeprefix("refs/heads/")
        default = default_of(output) if "HEAD" in commit_of else None
        sources = {branch: wanted} if wanted in commit_of else {}
        refs = dict.fromkeys(sources, _BRANCH)
        if default is not None:
            refs[default], sources[default] = _DEFAULT, f"refs/heads/{default}"
        commits = {name: commit_of["HEAD" if name == default else wanted] for name in refs}
        if any(self._held_commit(refs[name]) != sha for name, sha in commits.items()):
            self._bring(*(f"+{sources[name]}:{ref}" for name, ref in refs.items()))
            self._join_packs()
            # From the mirror itself: the fetched state, not the one announced a moment before.
            fetched = self.git("rev-parse", *refs.values()).splitlines()
            commits = dict(zip(refs, fetched, strict=True))
        return RepositorySnapshot(default, commits, beside)

    def _held_commit(self, ref: str) -> str | None:
        """Return the commit of a ref, read without a process; None: unknown."""
        with contextlib.suppress(OSError):
            return (self.git_dir / ref).read_text("utf-8").strip()
        return None

    def lend(self, git_dir: Path, *others: Path, branch: str = "main", refs: Mapping[str, str] = {}) -> GitRunner:
        """Make a git-dir that takes its objects from the mirror and others; by hand, which takes no process."""
        # Programs write into `hooks` and `info` without making them.
        for folder in ("objects/info", "refs", "hooks", "info"):
            (git_dir / folder).mkdir(parents=True)
        files = {
            "HEAD": f"ref: refs/heads/{branch}\n",
            "config": "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n",
            "packed-refs": "".join(f"{sha} {name}\n" for name, sha in refs.items()),
            "objects/info/alternates": "".join(f"{lender / 'objects'}\n" for lender in (self.git_dir, *others)),
            # Overrides the repository's attributes, so that files are checked out and committed byte for byte.
            "info/attributes": "* -text -ident -filter -working-tree-encoding\n",
        }
        for name, text in files.items():
            (git_dir / name).write_text(text, "utf-8", "surrogateescape")
        return self.git.inside(git_dir)


def lies_in(path: str, part: Sequence[str]) -> bool:
    """Whether a file lies in a part of a repository; one without paths is all of it."""
    return not part or any(f"{path}/".startswith(f"{folder}/") for folder in part)


def limit(git_dir: Path, part: Sequence[str]) -> None:
    """Let a git-dir that borrows from a mirror of a part check that part out, and not miss the rest."""
    config = _PROMISOR
    if part:
        config += "[core]\n\tsparseCheckout = true\n"
        patterns = "".join(re.sub(r"([\\*?\[ ])", r"\\\1", f"/{path}") + "\n" for path in part)
        (git_dir / "info/sparse-checkout").write_text(patterns, "utf-8")
    with (git_dir / "config").open("a", encoding="utf-8") as file:
        file.write(config)


def default_of(listed: str) -> str | None:
    """Return the default branch from the output of `git ls-remote --symref`, or None."""
    mark = "ref: refs/heads/"
    heads = (line.partition("\t") for line in listed.splitlines() if line.startswith(mark))
    return next((target.removeprefix(mark) for target, _, name in heads if name == "HEAD"), None)
