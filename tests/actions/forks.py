"""Commands by the thousand, each in a process of its own: forked from one that has imported everything, and killed.

Its process reads one JSON list a line, each entry a command, starts them all at once, and answers with one line.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from multiprocessing import Barrier
from multiprocessing.synchronize import Barrier as BarrierType
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

from tests.program import Program

PRELOADED = (
    *("app.__main__", "app.actions.imports", "app.cli.main", "app.cli.runs", "app.cli.orgs", "app.engine"),
    *("anyio._backends._asyncio", "encodings.idna", "h11", "httpcore"),
)
"""All that a write needs, imported once."""


def command(environment: dict[str, str], *lines: Sequence[str], **more: Any) -> dict[str, Any]:
    """A process that runs these command lines, each at the same moment as the others run theirs.

    It is killed as the `kill_at`th SQL statement begins, or after `kill_after_s`. `is_program`: only the first line,
    by the program itself, with neither its imports nor anything else prepared.
    """
    return {"environment": environment, "lines": lines, "kill_at": None, "kill_after_s": 0, "is_program": False, **more}


class Forks:
    """Runs commands; several at once are several processes."""

    def __init__(self, process: Program) -> None:
        self._process = process

    def run(self, *commands: dict[str, Any]) -> list[list[dict[str, Any]]]:
        """Each process's `code` (negative: the signal that killed it), and of each line its `out`; blocks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(commands) + "\n")
        self._process.stdin.flush()
        answer: list[list[dict[str, Any]]] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def forks() -> Iterator[Forks]:
    """A process that forks commands."""
    code = "from tests.actions.forks import main; main()"
    process = Program((), os.environ, code=code, streams=(PIPE, PIPE, sys.__stderr__.fileno()))
    yield Forks(process)
    process.close()
    process.wait()


def main() -> None:
    """Serve until stdin ends; there is no thread and no event loop in this process, at any time."""
    _preload(PRELOADED)
    from storage import database

    database.BUSY_WAIT_S = 5.0  # type: ignore[misc] — a test's own process
    database.PRECIOUS["synchronous"] = "OFF"  # type: ignore[index] — a dict, declared read-only
    for line in sys.stdin:
        given = json.loads(line)
        # Killed ones have one line, and nothing to wait for.
        together = Barrier(sum(not each["is_program"] for each in given))
        started = [_start(each, together) for each in given]
        ended = [_ended(*each) for each in started]
        sys.stdout.write(json.dumps([reports for reports, _ in ended]) + "\n")
        sys.stdout.flush()
        _preload({name for _, names in ended for name in names} - sys.modules.keys())


def _preload(names: Iterable[str]) -> None:
    """Import what later commands need, and keep it out of their garbage collections."""
    for name in names:
        # Some packages make modules that cannot be imported.
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def _start(given: dict[str, Any], together: BarrierType) -> tuple[int, IO[bytes]]:
    printed = TemporaryFile()  # noqa: SIM115 — closed by `_ended`
    child = os.fork()
    if child == 0:
        _run(given, together, printed.fileno())
    return child, printed


def _ended(child: int, printed: IO[bytes]) -> tuple[list[dict[str, Any]], list[str]]:
    _, status = os.waitpid(child, 0)
    with printed:
        printed.seek(0)
        *lines, imported = printed.read().decode().split("\0")
    code = os.waitstatus_to_exitcode(status)
    if code or not lines:
        return [{"out": imported, "code": code}], []
    outs, codes = lines[::2], lines[1::2]
    return [{"out": out, "code": int(code)} for out, code in zip(outs, codes, strict=True)], imported.split()


def _run(given: dict[str, Any], together: BarrierType, printed: int) -> NoReturn:
    os.dup2(printed, 1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 2)
    # The kernel ends the process, also after `execve`: nothing of ours handles this signal.
    signal.setitimer(signal.ITIMER_REAL, given["kill_after_s"])
    if given["is_program"]:
        os.execve(sys.executable, [sys.executable, "-m", "app", *given["lines"][0]], given["environment"])
    from app.__main__ import main as run_command_line

    _count_statements(given["kill_at"])
    loaded = set(sys.modules)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 — the process's own
    for line in given["lines"]:
        if len(given["lines"]) > 1:
            together.wait()
        # A token that was read is gone from it.
        os.environ.clear()
        os.environ.update(given["environment"])
        code = run_command_line(line)
        sys.stdout.write(f"\0{code}\0")
        sys.stdout.flush()
    sys.stdout.write(" ".join(sys.modules.keys() - loaded))
    sys.stdout.flush()
    os._exit(0)


def _count_statements(kill_at: int | None) -> None:
    from storage import database

    counted = count()
    connect = database.connect

    def tick(_: str) -> None:
        if next(counted) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(*arguments: Any) -> Any:
        connection = connect(*arguments)
        connection.set_trace_callback(tick)
        return connection

    database.connect = counting


def environment(folder: Path, base_url: str, **more: str) -> dict[str, str]:
    """What a command needs to reach this address, and nothing of this machine's."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "RUNWARDEN_BASE_URL": base_url,
        "RUNWARDEN_TOKEN": "token-for-tests",
        "RUNWARDEN_DATA_DIR": str(folder / "data"),
        **more,
    }
