"""The change of a turn: its patch, the whole run's, and their sizes."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from service.agents.options import ChangeLimits
from service.execution.git import GitCommandError, GitRunner
from service.text import plural

_EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# With this option on submodules, git reads no `.gitmodules`: the repository could make it fail with that file.
_COMPARE: Final = ("diff-tree", "-r", "--no-renames", "--ignore-submodules=none")
_MOST_CONTENT: Final = 256 << 20
"""A patch of files with no more bytes than this is always made; patches are held in memory."""
_PATCH: Final = (
    *(*_COMPARE, "--numstat", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The files that differ between two trees, including those that only one of them has."""

    names: tuple[str, ...]
    before: tuple[str, ...]
    """The mode and id of each in the base, as the index of git has them; zeros: it is not there."""
    blobs: frozenset[str]
    """The ids of their contents, before and after."""


def changed_between(git: GitRunner, git_dir: Path, base: str | None, tree: str) -> ChangedFiles:
    """Return the files that differ between a base (None: the empty tree) and a commit or tree."""
    listing = git(*_COMPARE, "-z", "--raw", base or _EMPTY_TREE, tree, git_dir=git_dir).split("\0")[:-1]
    # Entries alternate: modes, object ids and status, then the path.
    entries = [entry.removeprefix(":").split() for entry in listing[::2]]
    before = tuple(f"{entry[0]} {entry[2]}" for entry in entries)
    return ChangedFiles(tuple(listing[1::2]), before, frozenset(blob for entry in entries for blob in entry[2:4]))


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

    def write(
        self, git_dir: Path, base: str | None, commit: str, tree: str, turn_diff: Path, run_diff: Path
    ) -> TurnChange:
        """Write a commit's patch, and the whole run's unless the two are the same; `tree` is the commit's.

        Raises:
            GitCommandError: git could not make one.
        """
        merge_base = base if base and base == self.default else None
        if merge_base is None and self.default is not None:
            with contextlib.suppress(GitCommandError):
                merge_base = self.git("merge-base", self.default, commit, git_dir=git_dir)
        size = self._write_patch(turn_diff, git_dir, base, commit)
        if merge_base == base:
            run_diff.unlink(missing_ok=True)
        else:
            self._write_patch(run_diff, git_dir, merge_base, commit)
        return TurnChange(base, merge_base, *size, tree)

    def write_pushed(self, git_dir: Path, commit: str, turn_diff: Path, run_diff: Path) -> TurnChange:
        """Write the patches of a commit that an earlier attempt pushed, compared with its first parent."""
        tree, *parents = self.git("log", "--max-count=1", "--format=%T %P", commit, "--", git_dir=git_dir).split()
        return self.write(git_dir, parents[0] if parents else None, commit, tree, turn_diff, run_diff)

    def content_bytes(self, git_dir: Path, files: ChangedFiles) -> int:
        """Return the size of the touched files, before and after: making a patch reads all of them."""
        sizes = self.git.feed("\n".join(files.blobs), "cat-file", "--batch-check=%(objectsize)", git_dir=git_dir)
        # git says `missing` of a blob that does not exist, and of a submodule's commit.
        return sum(int(size) for size in sizes.split("\n") if size.isdecimal())

    def _write_patch(self, file: Path, git_dir: Path, base: str | None, commit: str) -> tuple[int, int, int]:
        """Write a patch into a file; return the numbers of files, added lines and removed lines."""
        found = self.git.feed(None, *_PATCH, base or _EMPTY_TREE, commit, git_dir=git_dir)
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
    return f"the change was not pushed: {why}; see it with: runwarden service run RUN_ID --diff"


def _touches(name: str, pattern: str) -> bool:
    """Whether a file is protected, lies in a protected folder, or would replace such a folder.

    Case is ignored: some disks do.
    """
    name, pattern = name.lower(), pattern.lower()
    if pattern.endswith("/"):
        return name.startswith(pattern) or pattern.startswith(f"{name}/")
    return fnmatchcase(name, pattern) or pattern.startswith(f"{name}/")
