"""Commands in processes of their own that are killed at any moment."""

from collections.abc import Mapping, Sequence
from subprocess import PIPE
from typing import Any, NamedTuple

from tests.program import Program

CODE = """
import os, signal, sys
from itertools import count
from app.__main__ import main
from storage import database

kill_at, kill_after_s, *line = sys.argv[1:]
sys.stdin.readline()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
# The kernel ends the process, after `execve` as well: nothing of ours handles this signal.
signal.setitimer(signal.ITIMER_REAL, float(kill_after_s))
if kill_at == "program":
    os.execve(sys.executable, [sys.executable, "-m", "app", *line], os.environ)
database.BUSY_WAIT_S = 5.0
connect, statements = database.connect, count()

def tick(_):
    if str(next(statements)) == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)

def counting(*arguments):
    connection = connect(*arguments)
    connection.set_trace_callback(tick)
    return connection

database.connect = counting
sys.exit(main(line))
"""


class Ended(NamedTuple):
    """A command that ended."""

    code: int
    """Negative: the signal that killed it."""
    out: str


def command(environment: Mapping[str, str], line: Sequence[str], kill_at: object = "", kill_after_s: float = 0) -> Any:
    """A command line for `run`: killed as its n-th SQL statement begins, or after some seconds.

    `kill_at="program"`: by the program itself, with neither its imports nor anything else prepared.
    """
    return environment, [str(kill_at), str(kill_after_s), *line]


def run(*commands: Any) -> list[Ended]:
    """Start all of these commands, let them go at the same moment, and wait until they have ended."""
    processes = [Program(arguments, given, code=CODE, streams=(PIPE, PIPE, PIPE)) for given, arguments in commands]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outs = [process.communicate()[0] for process in processes]
    return [Ended(process.wait(), out) for process, out in zip(processes, outs, strict=True)]
