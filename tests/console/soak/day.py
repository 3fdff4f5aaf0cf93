"""A service's day, in a process of its own: what the console's process holds is then the console's alone.

Run as a program it prints its address, and lets happen what lies before each poll whose number it reads.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.console.scenes import MINUTES_INTO_THE_DAY, a_day
from tests.run_board import Board, served

ROOT = Path(__file__).resolve().parents[3]


class Day:
    """The day as a watcher sees it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.base_url = self._said()

    def goes_on(self, number: int) -> None:
        """Lets happen what lies before this poll."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        assert self._said() == str(number)

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def day() -> Iterator[Day]:
    """A day that has just begun."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.console.soak.day"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        # It ends with its input.
        yield Day(process)


def happen(board: Board, number: int) -> None:
    """What a service does between two polls: a run ends, another begins, an old one comes alive again."""
    now = MINUTES_INTO_THE_DAY + number / 6
    board.put(f"run_new_{number:05}", "working", created=now, branch_name=f"agent/topic-{number % 40}")
    if number >= 3:
        board.put(f"run_new_{number - 3:05}", "completed", created=now - 0.5, updated=now)
    if number % 7 == 0 and number >= 14:
        board.put(f"run_new_{number - 14:05}", "queued", created=now - 14 / 6, updated=now)
    if number % 25 == 0:
        status = "degraded" if number % 50 else "ok"
        board.health = {**board.health, "github": {"status": status}}
    # As many as there were: what grows is time, not the board.
    for run_id in [run_id for run_id in board.runs if run_id < f"run_new_{number - 60:05}"][:2]:
        del board.runs[run_id]
    board.requests.clear()


def main() -> None:
    """Serves until the watcher has gone."""
    with served(Board()) as board:
        a_day(board)
        print(board.base_url, flush=True)
        for line in sys.stdin:
            happen(board, int(line))
            print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
