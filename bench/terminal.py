"""A program on a pseudo-terminal: started, typed into, and timed by what it paints."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Self

from app.profiles import CACHE_FILE, data_folder, load
from bench.history import fill

PATIENCE_S = 120.0
QUIET_S = 0.12
"""A terminal that was silent for so long has been painted."""
LINES, COLUMNS = 40, 140
CONSOLE = Path(sys.executable).with_name("runwarden")
"""What a user types; it lies beside the Python that measures."""
RUNS = rb"acme/service-"
"""Runs are on the screen."""
LEFT = rb"\x1b\[\?1049l"
"""The program gave the screen back."""
NO_SERVICE = "http://127.0.0.1:9/v1"
"""An address without a listener."""


class Terminal:
    """One program on its own terminal; the end of the block ends it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.started_s = time.perf_counter()
        self.process = subprocess.Popen(
            argv, env=dict(env), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.unread = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)

    def until(self, pattern: bytes) -> float:
        """When the pattern was on the terminal, as `time.perf_counter` tells it.

        Raises:
            TimeoutError: It never came.
        """
        end = time.perf_counter() + PATIENCE_S
        while not re.search(pattern, self.unread):
            if not self._read(end - time.perf_counter()):
                raise TimeoutError(f"{pattern!r} was not painted; last seen: {self.unread[-400:]!r}")
        self.unread = b""
        return time.perf_counter()

    def settled(self) -> float:
        """When the last byte came before the terminal fell silent, as `time.perf_counter` tells it.

        Raises:
            TimeoutError: It never falls silent.
        """
        last = start = time.perf_counter()
        while self._read(QUIET_S):
            last = time.perf_counter()
            if last - start > PATIENCE_S:
                raise TimeoutError("The terminal never falls silent.")
        self.unread = b""
        return last

    def press(self, keys: str) -> float:
        """Types; returns when."""
        start = time.perf_counter()
        os.write(self.master, keys.encode())
        return start

    def painted_after(self, keys: str) -> float:
        """Seconds from a key to the last byte of what it changed."""
        start = self.press(keys)
        return self.settled() - start

    def written_in(self, seconds: float) -> float:
        """Bytes a second that the program writes in this time."""
        self.unread, end = b"", time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._read(left)
        return len(self.unread) / seconds

    def anonymous_bytes(self) -> int:
        """Memory that is the process's own: file pages, such as SQLite's, come and go with the machine's needs."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    def _read(self, wait_s: float) -> bool:
        if not select.select([self.master], [], [], max(0.0, wait_s))[0]:
            return False
        try:
            self.unread += os.read(self.master, 65_536)
        except OSError:
            return False
        return True


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process took so far, all threads."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def environment(folder: str, base_url: str = NO_SERVICE) -> dict[str, str]:
    """A console's environment whose data lies in this folder."""
    return {
        **os.environ,
        # As installed: where no bytecode may be kept, most of a start is compiling.
        "PYTHONDONTWRITEBYTECODE": "",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "HOME": folder,
        "RUNWARDEN_DATA_DIR": folder,
        "RUNWARDEN_BASE_URL": base_url,
        "RUNWARDEN_TOKEN": "bench",
    }


def filled(folder: str, runs: int, base_url: str = NO_SERVICE) -> dict[str, str]:
    """The environment of a console that has so many runs cached, and keeps them however old they are by now."""
    config = Path(folder) / "config.toml"
    config.write_text("[history]\nkeep_days = 0\nmax_mb = 0\n")
    env = {**environment(folder, base_url), "RUNWARDEN_CONFIG": str(config)}
    settings = load(None, env)
    data = data_folder(settings, settings.profile())
    data.mkdir(parents=True, mode=0o700)
    fill(data / CACHE_FILE, runs)
    return env


def ready(console: Terminal, quiet_s: float = 3.0) -> None:
    """Waits until the console has opened its files and asked for the first time."""
    end = time.perf_counter() + quiet_s
    while time.perf_counter() < end:
        console.settled()
