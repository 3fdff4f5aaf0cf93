"""The change of a turn: its patch, the whole run's, and their sizes."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from service.agents.options import ChangeLimits
from service.execution.commits import COMPARE, EMPTY_TREE, ChangedFiles, TurnCommit
from service.execution.git import GitCommandError, GitRunner
from service.text import plural

_MOST_CONTENT: Final = 256 << 20
"""A patch of files with no more bytes than this is always made; patches are held in memory."""
_PATCH: Final = (
    *(*COMPARE, "--numstat", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)


@dataclass(frozen=True, slots=True)
class TurnChange:
    """The extent of a turn's change: its commits and its size, in fields named as a turn's."""

    base_sha: str | None
    """The branch's commit before the turn; None: the branch did not exist."""
    merge_base: str | None
    """The commit where the branch left the default branch; None: they have no common history."""
    files: int
    additions: int
    deletions: int
    tree_sha: str | None
    """The tree after it: another turn's change with the same tree is the same change. None: it has none."""


@dataclass(frozen=True, slots=True)
class Patches:
    """Makes the patches of one repository, and keeps them without secrets."""

    git: GitRunner
    mask: Callable[[str], str]
    default: str | None
    """The default branch's commit; None: the repository has no default branch."""

    def write(self, git_dir: Path, commit: TurnCommit, turn_diff: Path, run_diff: Path) -> TurnChange:
        """Write a commit's patch, and the whole run's unless the two are the same.

        Raises:
            GitCommandError: git could not make one.
        """
        base = commit.base
        merge_base = base if base and base == self.default else None
        if merge_base is None and self.default is not None:
            with contextlib.suppress(GitCommandError):
                merge_base = self.git("merge-base", self.default, commit.sha, git_dir=git_dir)
        size = self._write_patch(turn_diff, git_dir, commit.compared, commit.sha)
        if merge_base == commit.compared:
            run_diff.unlink(missing_ok=True)
        else:
            self._write_patch(run_diff, git_dir, merge_base, commit.sha)
        return TurnChange(base, merge_base, *size, commit.tree)

    def content_bytes(self, git_dir: Path, files: ChangedFiles) -> int:
        """Return the size of the touched files, before and after: making a patch reads all of them."""
        sizes = self.git.feed("\n".join(files.blobs), "cat-file", "--batch-check=%(objectsize)", git_dir=git_dir)
        # git says `missing` of a blob that does not exist, and of a submodule's commit.
        return sum(int(size) for size in sizes.split("\n") if size.isdecimal())

    def _write_patch(self, file: Path, git_dir: Path, base: str | None, commit: str) -> tuple[int, int, int]:
        """Write a patch into a file; return the numbers of files, added lines and removed lines."""
        found = self.git.feed(None, *_PATCH, base or EMPTY_TREE, commit, git_dir=git_dir)
        # A line for each file comes first, then an empty one.
        counts, _, patch = found.partition("\n\n")
        file.write_bytes(self.mask(patch).encode("utf-8", "surrogateescape"))
        lines = [line.split("\t", 2)[:2] for line in counts.splitlines()]
        # A binary file counts as '-'.
        added, removed = (sum(int(line[side]) for line in lines if line[side] != "-") for side in (0, 1))
        return len(lines), added, removed


def oversize(limits: ChangeLimits, content_bytes: int) -> str | None:
    """Return why a change is so large that no patch is made of it; None: one is made."""
    most = max(_MOST_CONTENT, 4 * limits.bytes)
    if content_bytes <= most:
        return None
    why = f"the files that it touches have {content_bytes} bytes, more than {most} (four times change.bytes)"
    return f"the change was not pushed: {why}"


def refusal(limits: ChangeLimits, names: Sequence[str], patch_bytes: int) -> str | None:
    """Return why a change is not pushed, with the key that allows it; None: it is within its limits."""
    guarded = next(((name, pattern) for name in names for pattern in limits.protected if _touches(name, pattern)), None)
    if guarded is not None:
        why = f"it touches {guarded[0]}, which is protected by {guarded[1]!r} (change.protected)"
    elif len(names) > limits.files:
        why = f"it touches {plural(len(names), 'file')}, more than {limits.files} (change.files)"
    elif patch_bytes > limits.bytes:
        why = f"its patch has {patch_bytes} bytes, more than {limits.bytes} (change.bytes)"
    else:
        return None
    return f"the change was not pushed: {why}; see it with: runwarden runs diff RUN_ID"


def _touches(name: str, pattern: str) -> bool:
    """Whether a file is protected, lies in a protected folder, or would replace such a folder.

    Case is ignored: some disks do.
    """
    name, pattern = name.lower(), pattern.lower()
    if pattern.endswith("/"):
        return name.startswith(pattern) or pattern.startswith(f"{name}/")
    return fnmatchcase(name, pattern) or pattern.startswith(f"{name}/")
