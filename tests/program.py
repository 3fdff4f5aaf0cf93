"""Forks `runwarden` processes from one that has imported everything, and runs each as a real program."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, TimeoutExpired
from typing import IO, Final

from app.__main__ import main

ROOT: Final = Path(__file__).resolve().parent.parent
MAX_S: Final = 300.0
FORKS: Final = multiprocessing.get_context("forkserver")
# Starting a program mostly means importing, so one process imports everything and each program is its fork.
FORKS.set_forkserver_preload(
    [
        *("tests.program", "service.cli.serve", "service.store.migrations"),
        *("dbos", "dbos._sys_db_sqlite", "psycopg", "alembic.command", "uvicorn.lifespan.off", "sqlite3"),
        "tests.imported",
    ]
)


class Program:
    """A running process, like `subprocess.Popen`; `code` runs instead of the program, like `python -c`."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        *,
        code: str | None = None,
        cwd: Path = ROOT,
        streams: Sequence[int] = (DEVNULL, PIPE, PIPE),
    ) -> None:
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        # A connection is the only way to pass a file descriptor to the fork server.
        theirs = [self._opened(number, kind) for number, kind in enumerate(streams)]
        self._process = FORKS.Process(target=_run, args=(code, list(arguments), dict(env), cwd, theirs), daemon=True)
        self._process.start()
        for stream in theirs:
            stream.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def _opened(self, number: int, kind: int) -> Connection:
        """The new process's side of a stream."""
        if kind == DEVNULL:
            return Connection(os.open(os.devnull, os.O_RDWR))
        if kind != PIPE:
            return Connection(os.dup(kind))
        reading, writing = os.pipe()
        theirs, ours = (reading, writing) if number == 0 else (writing, reading)
        name, mode = (("stdin", "w"), ("stdout", "r"), ("stderr", "r"))[number]
        setattr(self, name, os.fdopen(ours, mode, encoding="utf-8"))
        return Connection(theirs)

    @property
    def returncode(self) -> int | None:
        """Negative: the signal that killed it; None: it is running."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired("runwarden", timeout or 0)
        return self.returncode

    def communicate(self, stdin: str = "", timeout: float | None = None) -> tuple[str, str]:
        with ThreadPoolExecutor(3) as threads:
            written = threads.submit(self._write, stdin)
            read = [threads.submit(stream.read) if stream else None for stream in (self.stdout, self.stderr)]
            try:
                out, err = (output.result(timeout) if output else "" for output in read)
                written.result(timeout)
            except TimeoutError:
                self.kill()
                raise
        self.wait(timeout)
        self.close()
        return out, err

    def completed(self) -> CompletedProcess[str]:
        """The exit status and the output, once the process has exited by itself."""
        out, err = self.communicate(timeout=MAX_S)
        return CompletedProcess([], self.wait(), out, err)

    def _write(self, text: str) -> None:
        # It may exit before it has read everything.
        with suppress(BrokenPipeError):
            if self.stdin is not None:
                with self.stdin:
                    self.stdin.write(text)

    def close(self) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    code: str | None, arguments: list[str], environment: dict[str, str], cwd: Path, streams: list[Connection]
) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
    for stream in streams:
        stream.close()
    sys.__stdin__ = sys.stdin = _stream(0, "r", "surrogateescape")  # type: ignore[misc] — an interpreter sets them at its start
    sys.__stdout__ = sys.stdout = _stream(1, "w", "surrogateescape")  # type: ignore[misc] — as above
    sys.__stderr__ = sys.stderr = _stream(2, "w", "backslashreplace")  # type: ignore[misc] — as above
    sys.argv = ["-c" if code else "app/__main__.py", *arguments]
    try:
        if code is None:
            sys.exit(main())
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _stream(number: int, mode: str, errors: str) -> TextIOWrapper:
    raw = open(number, f"{mode}b")  # noqa: SIM115 — the stream stays open like the process's own
    return TextIOWrapper(raw, "utf-8", errors, newline="\n", line_buffering=number == 2 or raw.isatty())
