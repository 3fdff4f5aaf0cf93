"""The program in a process of its own, on a terminal of its own."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.cli.conftest import CommandLine
from tests.program import Program
from tests.pty.ansi import Screen
from tests.service_process import ROOT

DEADLINE_S = 120.0
"""For what is certain to come; only a fault waits so long."""
CALM_S = 240.0
"""A key is answered by then, however slow the machine; a console that paints for ever is named by its key."""
SILENCE_S = 0.1
"""Longer than any pause of the console between a key and its answer: a search waits 0.08 for the next letter."""
ESCAPE = "\x1b[27u"
"""As a terminal says it that tells its keys apart: a bare one joins the key that a busy machine reads with it."""
ASLEEP = frozenset("SZTtX")
"""States of a thread, as the kernel names them, that does nothing; one without a turn on the processor is in R."""
TOKEN: Final = "token-of-the-terminal"


def environment(home: Path, base_url: str, **more: str) -> dict[str, str]:
    """Return what a console needs whose files are all in this folder, a configuration among them."""
    own = {"RUNWARDEN_CONFIG": str(home / "config.toml"), "TZ": "UTC"}
    return CommandLine(home, base_url, TOKEN, own | more).environment


class Terminal:
    """Starts a program on a pseudo-terminal, types into it, and keeps all that it wrote."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        size: tuple[int, int] = (100, 30),
        *,
        code: str | None = None,
        cwd: Path = ROOT,
    ) -> None:
        self.master, self.slave = pty.openpty()
        self._closed = False
        self.seen = b""
        self._screen, self._undrawn = Screen(*size), b""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.attributes_before = termios.tcgetattr(self.slave)
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **env}
        self.process = Program(arguments, env, code=code, cwd=cwd, streams=[self.slave] * 3)

    @property
    def screen(self) -> Screen:
        undrawn, self._undrawn = self._undrawn, b""
        self._screen.write(undrawn)
        return self._screen

    def read_until(self, fact: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
        """Reads until the fact holds.

        Raises:
            AssertionError: It never did, or the program ended before.
        """
        end = time.monotonic() + deadline_s
        while not fact():
            if not self._read(min(0.2, end - time.monotonic())) and self.process.poll() is not None and not fact():
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.seen[-2000:]!r}")
            if time.monotonic() > end:
                raise AssertionError(f"never so:\n{self.screen.text}\n{self.seen[-300:]!r}")

    def shows(self, *texts: str) -> None:
        self.read_until(lambda: all(text in self.screen.text for text in texts))

    def wrote(self, sequence: bytes, times: int = 1) -> None:
        self.read_until(lambda: self.seen.count(sequence) >= times)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def press(self, *keys: str) -> None:
        """Presses keys one by one, each once the one before it is answered: nothing is painted and no thread works.

        Raises:
            AssertionError: A key is followed by no such pause.
        """
        for key in keys:
            self.type(key)
            end = time.monotonic() + CALM_S
            while self._read(SILENCE_S) or not self._is_asleep():
                if time.monotonic() > end:
                    painted = len(self.seen)
                    self._read_for(5.0)
                    latest = self.seen[painted:]
                    raise AssertionError(
                        f"no silence after {key!r}; threads {self._states()}; painted in 5 s: {len(latest):,} bytes,"
                        f" at the end {latest[-2000:]!r} on\n{self.screen.text}"
                    )

    def _read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            self._read(rest)

    @property
    def attributes(self) -> object:
        return termios.tcgetattr(self.slave)

    def end(self, deadline_s: float = DEADLINE_S) -> int:
        """Reads to the end; the exit status.

        Raises:
            AssertionError: It goes on.
        """
        end = time.monotonic() + deadline_s
        while self.process.poll() is None:
            self._read(0.05)
            if time.monotonic() > end:
                raise AssertionError(f"does not end:\n{self.screen.text}")
        while self._read(0.05):
            pass
        return self.process.wait()

    def vanish(self) -> int:
        """The terminal goes, and no signal is sent for it; the exit status of the program that was on it."""
        self._close_both()
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._close_both()

    def _is_asleep(self) -> bool:
        return ASLEEP.issuperset(self._states())

    def _states(self) -> str:
        return "".join(_state(stat) for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"))

    def _close_both(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self.slave)
            os.close(self.master)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.master], [], [], max(0.0, wait_s))[0]:
            return False
        data = os.read(self.master, 65_536)
        self.seen += data
        self._undrawn += data
        return True


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
