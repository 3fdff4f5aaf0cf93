"""Reading a repository with git; no hook, filter, pager, external diff or network call of the repository runs."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Final

from service.errors import ServiceError

FILE_BYTES: Final = 512 * 1024
"""A longer file is judged by its name and size only."""
TREE_ENTRIES: Final = 200_000
"""Paths listed of a tree; beyond it, checks that need to know every path are left out."""
_TIMEOUT_S: Final = 30.0
SYMLINK: Final = "120000"
SUBMODULE: Final = "160000"
_INHERITED: Final = (
    *("PATH", "HOME", "TMPDIR"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_CEILING_DIRECTORIES"),
)
"""The only environment variables that git takes over from this process."""
_HARDENING: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # the git-dir may be read-only
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_OPTIONS: Final = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.attributesFile=")
_ENDED: Final = "git cat-file ended early; is the repository damaged? try git fsck"


class GitReadError(ServiceError):
    """Git could not answer; the text is git's own first line, or says what to do."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path of a commit."""

    path: str
    """Bytes that are not UTF-8 are kept as surrogates."""
    mode: str
    oid: str
    size: int
    """Bytes; 0 for a submodule."""


class GitFiles:
    """Read-only questions to the repository of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._environment = {key: os.environ[key] for key in _INHERITED if key in os.environ} | _HARDENING

    def ask(self, *arguments: str) -> bytes:
        """Run one git command and return its standard output.

        Raises:
            GitReadError: git is missing, took too long, or failed.
        """
        try:
            done = subprocess.run(
                self._argv(arguments),
                cwd=self._checkout,
                env=self._environment,
                input=b"",
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise GitReadError("git is not on PATH; install git where agents run") from error
        except subprocess.TimeoutExpired as error:
            raise GitReadError(f"git {arguments[0]} took longer than {_TIMEOUT_S:.0f} s") from error
        if done.returncode:
            messages = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise GitReadError(f"git {arguments[0]}: {messages[0]}")
        return done.stdout

    def commit(self, revision: str) -> str | None:
        """The commit a revision names, or None when there is none."""
        return self._commit("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")

    def merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor of two commits, or None when they share no history."""
        return self._commit("merge-base", one, other)

    def _commit(self, *arguments: str) -> str | None:
        try:
            return self.ask(*arguments).decode("ascii", "replace").partition("\n")[0] or None
        except GitReadError:
            return None

    def tree(self, commit: str) -> tuple[dict[str, TreeEntry], bool]:
        """All paths of a commit, and whether there were more than the limit.

        Raises:
            GitReadError: the commit cannot be read.
        """
        entries: dict[str, TreeEntry] = {}
        for record in self.ask("ls-tree", "-r", "-l", "-z", "--full-tree", commit).split(b"\0"):
            meta, _, name = record.partition(b"\t")
            if not name:
                continue
            if len(entries) >= TREE_ENTRIES:
                return entries, True
            mode, _kind, oid, size = meta.decode("ascii").split()
            path = _path(name)
            entries[path] = TreeEntry(path, mode, oid, int(size) if size.isdigit() else 0)
        return entries, False

    def changes(self, old: str, new: str) -> dict[str, str | None]:
        """The paths that differ, each with its former blob, if any; a renamed path has that of its old name.

        Raises:
            GitReadError: one of the commits cannot be read.
        """
        options = ("-r", "-z", "--raw", "--no-abbrev", "-M", "-l400", "--no-ext-diff", "--no-textconv")
        fields = iter(self.ask("diff-tree", *options, "--no-commit-id", old, new).split(b"\0"))
        found: dict[str, str | None] = {}
        for field in filter(None, fields):
            old_mode, _, old_oid, _, status = field.decode("ascii")[1:].split()
            path = next(fields)
            if status[0] in "RC":
                path = next(fields)
            found[_path(path)] = None if old_mode in {"000000", SUBMODULE, SYMLINK} else old_oid
        return found

    @contextmanager
    def blobs(self) -> Iterator["Blobs"]:
        """Read blobs through one git process, which ends with the context."""
        argv = self._argv(("cat-file", "--batch"))
        process = subprocess.Popen(
            argv, cwd=self._checkout, env=self._environment, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        with process:
            if process.stdin is None or process.stdout is None:  # pragma: no cover — both are pipes
                raise GitReadError("git cat-file was started without pipes")
            try:
                yield Blobs(process.stdin, process.stdout)
            finally:
                process.kill()

    def _argv(self, arguments: tuple[str, ...]) -> list[str]:
        return ["git", "--no-pager", *_OPTIONS, *arguments]


def _path(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")  # independent of the locale


class Blobs:
    """The contents of blobs, asked of a running `git cat-file --batch`."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes]) -> None:
        self._requests = requests
        self._replies = replies

    def read(self, oid: str) -> bytes | None:
        """The content of a blob, or None when it is missing, not a blob, or longer than the limit for a file.

        Raises:
            GitReadError: git stopped answering.
        """
        try:
            self._requests.write(f"{oid}\n".encode())
            self._requests.flush()
        except BrokenPipeError as error:
            raise GitReadError(_ENDED) from error
        header = self._replies.readline(4096).split()
        if not header:
            raise GitReadError(_ENDED)
        try:
            _, kind, length = header
        except ValueError:  # "<oid> missing"
            return None
        size = int(length)
        if kind == b"blob" and size <= FILE_BYTES:
            return self._replies.read(size + 1)[:size]
        self._skip(size + 1)
        return None

    def _skip(self, size: int) -> None:
        """Read past a content that is not wanted, in parts that fit into memory."""
        while size > 0:
            skipped = len(self._replies.read(min(size, FILE_BYTES)))
            if not skipped:
                raise GitReadError(_ENDED)
            size -= skipped
