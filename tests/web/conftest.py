import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.scenes import a_day
from tests.lab import Lab
from tests.program import Program
from tests.service_process import ROOT

PATIENCE_S = 120.0


class Web:
    """`runwarden web` in a process of its own, at a terminal's keyboard."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.keyboard, terminal = pty.openpty()
        self._said = Path(environment["HOME"]) / "said"
        with self._said.open("w") as said:
            streams = (terminal, subprocess.PIPE, said.fileno())
            self.process = Program(("web", *arguments), environment, streams=streams)
        os.close(terminal)
        self.link = self._printed()

    def enter(self) -> str:
        """The link that Enter prints."""
        os.write(self.keyboard, b"\n")
        self.link = self._printed()
        return self.link

    def _printed(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    @property
    def origin(self) -> str:
        return self.link.partition("/open/")[0]

    @property
    def said(self) -> str:
        """On standard error, so far."""
        return self._said.read_text()

    @property
    def consoles(self) -> list[int]:
        """The processes that it started and that live."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in children.read_text().split()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.stdout.close()
            os.close(self.keyboard)
        return status


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A home of its own, and a service with a day's runs configured."""
    with Lab() as board:
        a_day(board)
        yield {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path_factory.mktemp("home")),
            "PYTHONPATH": str(ROOT),
            "RUNWARDEN_BASE_URL": board.base_url,
            "RUNWARDEN_TOKEN": "token-of-the-browser",
        }


@pytest.fixture(scope="module")
def shared_web(environment: dict[str, str]) -> Iterator[Web]:
    """The console, served; shared: each test follows a link of its own and leaves no console behind."""
    web = Web(environment)
    yield web
    web.end()


@pytest.fixture
def web(shared_web: Web) -> Web:
    """The console, served, with a link that was not followed yet."""
    shared_web.enter()
    return shared_web
