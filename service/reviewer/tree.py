"""What a commit holds and what a branch changed, as git lists it; paths are text that may hold anything."""

from dataclasses import dataclass
from typing import Final

from service.reviewer.git import Git
from service.reviewer.limits import TREE_ENTRIES

SYMLINK: Final = "120000"
EXECUTABLE: Final = "100755"
SUBMODULE: Final = "160000"


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a commit."""

    path: str
    """Bytes that are no UTF-8 are kept as surrogates."""
    mode: str
    oid: str
    size: int
    """Bytes; 0 for a submodule."""


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two commits."""

    path: str
    """The path at the newer commit; at the older one when it was deleted."""
    status: str
    """One letter: A, M, D, R, C or T."""
    old_path: str
    old_oid: str | None
    """The blob before; None when there was none."""


def text_of(raw: bytes) -> str:
    """A path as text, the same on every locale."""
    return raw.decode("utf-8", "surrogateescape")


def bytes_of(path: str) -> bytes:
    """The path as the file system wants it."""
    return path.encode("utf-8", "surrogateescape")


def list_tree(git: Git, commit: str) -> tuple[dict[str, Entry], bool]:
    """All paths of a commit, and whether there were more than the limit.

    Raises:
        GitError: the commit cannot be read.
    """
    entries: dict[str, Entry] = {}
    for record in git.ask("ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0"):
        meta, _, name = record.partition(b"\t")
        if not name:
            continue
        if len(entries) >= TREE_ENTRIES:
            return entries, True
        mode, _kind, oid, size = meta.decode("ascii").split()
        path = text_of(name)
        entries[path] = Entry(path, mode, oid, int(size) if size.isdigit() else 0)
    return entries, False


def list_changes(git: Git, old: str, new: str) -> list[Change]:
    """The paths that differ from one commit to another, renames followed.

    Raises:
        GitError: one of the commits cannot be read.
    """
    options = ("-r", "-z", "--raw", "--no-abbrev", "-M", "-l400", "--no-ext-diff", "--no-textconv", "--no-commit-id")
    fields = git.ask("diff-tree", *options, old, new).split(b"\0")
    changes = []
    position = 0
    while position < len(fields) and fields[position].startswith(b":"):
        old_mode, _, old_oid, _, status = fields[position].decode("ascii")[1:].split()
        moved = status[0] in "RC"
        old_path = text_of(fields[position + 1])
        path = text_of(fields[position + 2]) if moved else old_path
        had_text = old_mode not in {"000000", SUBMODULE, SYMLINK}
        changes.append(Change(path, status[0], old_path, old_oid if had_text else None))
        position += 3 if moved else 2
    return changes
