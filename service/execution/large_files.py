"""Git LFS: the repository holds pointers, the code host the contents. git-lfs runs outside the sandbox, with the token.

The contents are kept next to the repository's mirror. The agent's own git gets the filter, without a way to the host.
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service import trees
from service.execution.mirror import RepositoryMirror
from service.git import GitCommandError, GitRunner

_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})\nsize [0-9]+\n?"
)
_MAX_POINTER: Final = 1024
_PIECE: Final = 1 << 20
FILTER: Final = (
    '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge --skip -- %f\n'
    "\tprocess = git-lfs filter-process --skip\n\trequired = true\n"
)
"""The configuration of the agent's git: it makes pointers of large files, and leaves those without a content alone."""


def tracked_files(git: GitRunner, tree: str, names: Sequence[str] | None = None) -> list[str]:
    """Return the files of a tree that its attributes give to Git LFS, of those named; the git-dir gets its index."""
    git("read-tree", tree)
    names_text = git("ls-files", "-z") if names is None else "".join(f"{name}\0" for name in names)
    attributes = git.feed(names_text, "check-attr", "--cached", "-z", "--stdin", "filter").split("\0")
    return [name for name, value in zip(attributes[::3], attributes[2::3], strict=False) if value == "lfs"]


def object_in(file: Path) -> str | None:
    """Return the id of the object that a file of a checkout points to; None: it is no pointer."""
    with contextlib.suppress(OSError):
        if match := _POINTER.fullmatch(trees.read(file, _MAX_POINTER)):
            return match[1].decode()
    return None


@dataclass(frozen=True, slots=True)
class LargeFiles:
    """The large files of one repository."""

    mirror: RepositoryMirror

    def fill(self, tree: Path, names: Iterable[str], commit: str) -> list[str]:
        """Put the contents in place of the pointers in a new checkout of a commit; return the names of the files.

        Raises:
            GitCommandError: The code host does not deliver them.
        """
        objects = {name: oid for name in names if (oid := object_in(tree / name)) is not None}
        if any(not self._file(oid).exists() for oid in objects.values()):
            self._lfs("fetch", "origin", commit)
        for name, oid in objects.items():
            if not self._file(oid).exists():
                raise GitCommandError(f"the code host does not have the content of {name} (Git LFS, sha256 {oid})")
            descriptor = os.open(tree / name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "wb") as target, self._file(oid).open("rb") as source:
                shutil.copyfileobj(source, target, _PIECE)
        return [*objects]

    def take(self, tree: Path, names: Iterable[str]) -> dict[str, str]:
        """Keep the contents of an agent's files, and return their pointers by name."""
        pointers = {}
        for name in names:
            if object_in(tree / name) is not None or (tree / name).is_symlink() or not (tree / name).is_file():
                continue
            digest, size = hashlib.sha256(), 0
            unique = f"{os.getpid()}-{hashlib.sha256(os.fsencode(tree / name)).hexdigest()}"
            new = self.mirror.git_dir / f"lfs/incoming-{unique}"
            new.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(tree / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as source, new.open("wb") as target:
                for piece in iter(lambda: source.read(_PIECE), b""):
                    digest.update(piece)
                    size += target.write(piece)
            file = self._file(digest.hexdigest())
            file.parent.mkdir(parents=True, exist_ok=True)
            new.replace(file)
            pointers[name] = f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.name}\nsize {size}\n"
        return pointers

    def upload(self, git: GitRunner, blobs: Iterable[str]) -> None:
        """Send the contents of pointers to the code host, of those that are kept here.

        Raises:
            GitCommandError: The code host does not accept them.
        """
        oids = set()
        for blob in blobs:
            # An id of zeros, which git does not find: the file exists only before or after.
            with contextlib.suppress(GitCommandError):
                if int(git("cat-file", "-s", blob)) <= _MAX_POINTER:
                    content = git.feed(None, "cat-file", "blob", blob)
                    if match := _POINTER.fullmatch(content.encode("utf-8", "surrogateescape")):
                        oids.add(match[1].decode())
        if mine := sorted(oid for oid in oids if self._file(oid).exists()):
            self._lfs("push", "--object-id", "origin", *mine)

    def _file(self, oid: str) -> Path:
        return self.mirror.git_dir / "lfs/objects" / oid[:2] / oid[2:4] / oid

    def _lfs(self, *arguments: str) -> None:
        # These settings come before those of a `.lfsconfig` in the repository, which could name another host.
        url = self.mirror.git.url
        settings = {
            "remote.origin.url": url,
            "lfs.url": f"{url.removesuffix('/')}/info/lfs",
            "lfs.storage": str(self.mirror.git_dir / "lfs"),
            "lfs.locksverify": "false",
        }
        if url.startswith(("/", "file://")):
            # Git LFS reads the folder with the same settings: it would look for its objects among ours.
            del settings["lfs.storage"]
            settings["lfs.url"] = url if url.startswith("file://") else Path(url).as_uri()
        elif not url.startswith(("http://", "https://")):
            del settings["lfs.url"]
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        try:
            self.mirror.git(*options, "lfs", *arguments)
        except GitCommandError as error:
            if "is not a git command" in str(error):
                raise GitCommandError("git-lfs is missing on this machine: install it, or remove lfs = true") from error
            raise
