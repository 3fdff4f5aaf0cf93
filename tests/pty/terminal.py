"""The program as a process on its own terminal."""

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
from tests.program import ROOT, Program
from tests.pty.ansi import Screen

DEADLINE_S = 120.0
"""The deadline for what must happen; only a fault takes this long."""
CALM_S = 240.0
"""The deadline for a key on a slow machine; a console that paints forever is reported with its key."""
SILENCE_S = 0.1
"""Longer than any pause of the console between a key and its answer: a search waits 0.08 for the next letter."""
ESCAPE = "\x1b[27u"
"""Escape as an unambiguous sequence: a bare one would join the key read after it on a busy machine."""
ASLEEP = frozenset("SZTtX")
"""The kernel's states of an idle thread; one that waits for the processor is in R."""
TOKEN: Final = "token-of-the-terminal"


def environment(home: Path, base_url: str, **more: str) -> dict[str, str]:
    """Return the environment of a console whose files, including a configuration, are all in this folder."""
    own = {"RUNWARDEN_CONFIG": str(home / "config.toml"), "TZ": "UTC"}
    return CommandLine(home, base_url, TOKEN, own | more).environment


class Terminal:
    """Starts a program on a pseudo-terminal, types into it, and records its output."""

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
        """Reads until the condition holds. Raises: AssertionError: It never did, or the program exited before."""
        end = time.monotonic() + deadline_s
        while not fact():
            if not self._read(min(0.2, end - time.monotonic())) and self.process.returncode is not None and not fact():
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

        Raises: AssertionError: A key is followed by no such pause.
        """
        for key in keys:
            self.type(key)
            end = time.monotonic() + CALM_S
            while self._read(SILENCE_S) or self.states - ASLEEP:
                if time.monotonic() > end:
                    painted, end = len(self.seen), time.monotonic() + 5.0
                    while time.monotonic() < end:
                        self._read(0.1)
                    latest = self.seen[painted:]
                    raise AssertionError(
                        f"no silence after {key!r}; threads {self.states}; painted in 5 s: {len(latest):,} bytes,"
                        f" at the end {latest[-2000:]!r} on\n{self.screen.text}"
                    )

    @property
    def attributes(self) -> object:
        return termios.tcgetattr(self.slave)

    def end(self, deadline_s: float = DEADLINE_S) -> int:
        """Reads to the end; returns the exit status. Raises: AssertionError: The program keeps running."""
        end = time.monotonic() + deadline_s
        while self.process.returncode is None:
            self._read(0.05)
            if time.monotonic() > end:
                raise AssertionError(f"does not end:\n{self.screen.text}")
        while self._read(0.05):
            pass
        return self.process.wait()

    def vanish(self) -> int:
        """Removes the terminal without a signal; returns the exit status of its program."""
        self._close_both()
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._close_both()

    @property
    def states(self) -> set[str]:
        """The states of its threads, as in /proc."""
        return {_state(stat) for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat")}

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
