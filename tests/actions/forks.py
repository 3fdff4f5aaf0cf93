"""Commands by the thousand, each in a process of its own: forked from one that has imported everything, and killed.

As a program it reads one JSON list a line, each entry a command, starts them all at once, and answers with one line.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    *("app.__main__", "app.actions.imports", "app.cli.main", "app.cli.runs", "app.cli.orgs", "app.engine"),
    *("anyio._backends._asyncio", "encodings.idna", "h11", "httpcore"),
)
"""All that a write needs, imported once."""
ROOT = Path(__file__).resolve().parents[2]


def command(*argv: str, kill_at: int | None = None, kill_after_s: float | None = None) -> dict[str, Any]:
    """A command line, killed as its n-th SQL statement begins, or after a time."""
    return {"argv": argv, "kill_at": kill_at, "kill_after_s": kill_after_s}


class Forks:
    """Runs commands; several at once are several processes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, *commands: dict[str, Any]) -> list[dict[str, Any]]:
        """Each command's `code` (negative: the signal that killed it), `out` and number of `statements`; blocks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(commands) + "\n")
        self._process.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def forks(environment: dict[str, str]) -> Iterator[Forks]:
    """A process that forks commands with this environment."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.actions.forks"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Forks(process)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    """Serve until stdin ends."""
    for name in PRELOADED:
        import_module(name)
    from storage import database
    from storage.ledger import opening

    database.BUSY_WAIT_S = 5.0  # type: ignore[misc] — a test's own process
    opening.PRAGMAS["synchronous"] = "OFF"  # type: ignore[index] — a dict, declared read-only
    for line in sys.stdin:
        started = [_start(each) for each in json.loads(line)]
        sys.stdout.write(json.dumps([_ended(*each) for each in started]) + "\n")
        sys.stdout.flush()


def _start(given: dict[str, Any]) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(given, writing)
    os.close(writing)
    return child, reading


def _ended(child: int, reading: int) -> dict[str, Any]:
    with os.fdopen(reading, encoding="utf-8") as stream:
        out, _, statements = stream.read().rpartition("\0")
    _, status = os.waitpid(child, 0)
    return {"code": os.waitstatus_to_exitcode(status), "out": out, "statements": int(statements or 0)}


def _run(given: dict[str, Any], writing: int) -> NoReturn:
    from app.__main__ import main as run_command_line

    counted = _count_statements(given["kill_at"])
    if given["kill_after_s"] is not None:
        timer = threading.Timer(given["kill_after_s"], os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    os.dup2(writing, 1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 — the process's own
    code = run_command_line(given["argv"])
    sys.stdout.write(f"\0{next(counted)}")
    sys.stdout.flush()
    os._exit(code)


def _count_statements(kill_at: int | None) -> Iterator[int]:
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
    return counted


def environment(folder: Path, base_url: str, **more: str) -> dict[str, str]:
    """What a command needs to reach this address, and nothing of this machine's."""
    path: Sequence[str] = os.environ["PATH"].split(os.pathsep)
    return {
        "PATH": os.pathsep.join(path),
        "HOME": str(folder),
        "RUNWARDEN_BASE_URL": base_url,
        "RUNWARDEN_TOKEN": "token-for-tests",
        "RUNWARDEN_DATA_DIR": str(folder / "data"),
        **more,
    }


if __name__ == "__main__":
    main()
