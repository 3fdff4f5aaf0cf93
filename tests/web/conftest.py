import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run_board import Board
from tests.web.chromium import Chromium, find

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0


class Web:
    """`runwarden web` in a process of its own."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app", "web", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()

    @property
    def origin(self) -> str:
        return self.link.partition("/open/")[0]

    @property
    def consoles(self) -> list[int]:
        """The processes that it started and that live."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in children.read_text().split()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


@pytest.fixture
def environment(board: Board, tmp_path: Path) -> dict[str, str]:
    """A home of its own, and that service configured."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "RUNWARDEN_BASE_URL": board.base_url,
        "RUNWARDEN_TOKEN": "token-of-the-browser",
    }


@pytest.fixture
def web(environment: dict[str, str]) -> Iterator[Web]:
    """The console, served."""
    web = Web(environment)
    yield web
    web.end()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Chromium with an empty profile."""
    binary = find()
    if binary is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    chromium = Chromium(binary, tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()
