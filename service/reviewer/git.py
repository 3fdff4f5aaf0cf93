"""Git, asked for facts only: no hook, filter, pager, external diff or network call of a repository ever runs."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from service.reviewer.limits import FILE_BYTES, GIT_TIMEOUT_S

_KEPT: Final = ("PATH", "HOME", "TMPDIR", "GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_CEILING_DIRECTORIES")
_HARD: Final = {
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
_CHUNK: Final = 1024 * 1024


class GitError(Exception):
    """Git could not answer; the text is git's own first line, or says what to do."""


class Git:
    """Read-only questions to the repository of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._environment = {key: os.environ[key] for key in _KEPT if key in os.environ} | _HARD

    def ask(self, *arguments: str, given: bytes | None = None) -> bytes:
        """Run one git command and return its standard output.

        Raises:
            GitError: git is missing, took too long, or said no.
        """
        try:
            done = subprocess.run(
                self._argv(arguments),
                cwd=self._checkout,
                env=self._environment,
                input=given if given is not None else b"",
                capture_output=True,
                timeout=GIT_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise GitError("git is not on PATH; install git where agents run") from error
        except subprocess.TimeoutExpired as error:
            raise GitError(f"git {arguments[0]} took longer than {GIT_TIMEOUT_S:.0f} s") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise GitError(f"git {arguments[0]}: {said[0]}")
        return done.stdout

    def commit(self, revision: str) -> str | None:
        """The commit a revision names, or None when there is none."""
        try:
            found = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except GitError:
            return None
        return found.decode("ascii", "replace").strip() or None

    def merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor of two commits, or None when they share no history."""
        try:
            found = self.ask("merge-base", one, other)
        except GitError:
            return None
        return found.decode("ascii", "replace").split("\n", 1)[0].strip() or None

    @contextmanager
    def blobs(self) -> Iterator["Blobs"]:
        """A reader of blobs, one process for all of them."""
        process = subprocess.Popen(
            self._argv(("cat-file", "--batch")),
            cwd=self._checkout,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with process:
            if process.stdin is None or process.stdout is None:  # pragma: no cover — both are pipes
                raise GitError("git cat-file was started without pipes")
            try:
                yield Blobs(process.stdin, process.stdout)
            finally:
                process.kill()

    def _argv(self, arguments: tuple[str, ...]) -> list[str]:
        return ["git", "--no-pager", *_OPTIONS, *arguments]


class Blobs:
    """Contents by object id."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    def read(self, oid: str) -> bytes | None:
        """The content of a blob, or None when it is missing, no blob, or longer than the limit for a file.

        Raises:
            GitError: git stopped answering.
        """
        try:
            self._questions.write(f"{oid}\n".encode())
            self._questions.flush()
        except BrokenPipeError as error:
            raise GitError("git cat-file ended early; is the repository damaged? try git fsck") from error
        header = self._answers.readline(4096).split()
        if not header:
            raise GitError("git cat-file ended early; is the repository damaged? try git fsck")
        if len(header) != 3:  # noqa: PLR2004 — object, kind, size; anything else says that it is missing
            return None
        size = int(header[2])
        if header[1] == b"blob" and size <= FILE_BYTES:
            return self._answers.read(size + 1)[:size]
        self._drain(size + 1)
        return None

    def _drain(self, size: int) -> None:
        while size > 0:
            taken = len(self._answers.read(min(size, _CHUNK)))
            if not taken:
                raise GitError("git cat-file ended early; is the repository damaged? try git fsck")
            size -= taken
