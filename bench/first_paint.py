"""How soon the console shows its cached rows, against a bare Textual app with one line of text; both on a real pty."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fcntl import ioctl
from termios import TIOCSWINSZ

from app.config import CACHE_FILE, data_folder, load
from bench.figures import Figure, paired
from bench.history import fill

BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("first-painted-line")
Bare().run()
"""
PATIENCE_S = 30


def measure(count: int) -> Iterator[Figure]:
    """The console with one and with many cached runs."""
    for runs in (1_000, count):
        with tempfile.TemporaryDirectory() as folder:
            env = {
                **os.environ,
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                "RUNWARDEN_DATA_DIR": folder,
                "RUNWARDEN_BASE_URL": "http://127.0.0.1:9/v1",
                "RUNWARDEN_TOKEN": "bench",
            }
            settings = load(None, env)
            place = data_folder(settings, settings.profile())
            place.mkdir(parents=True, mode=0o700)
            fill(place / CACHE_FILE, runs)
            seconds, bare = paired(
                lambda env=env: painted([sys.executable, "-m", "app"], env, b"acme/service-"),
                lambda env=env: painted([sys.executable, "-c", BARE], env, b"first-painted-line"),
            )
            yield Figure(f"first painted rows of {runs:,} cached runs", seconds, "bare Textual", bare)


def painted(argv: list[str], env: dict[str, str], marker: bytes) -> float:
    """Seconds until the marker is on the terminal.

    Raises:
        TimeoutError: It never came.
    """
    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        _await(master, marker)
        return time.perf_counter() - start
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


def _await(master: int, marker: bytes) -> None:
    seen = b""
    end = time.monotonic() + PATIENCE_S
    while marker not in seen:
        if not select.select([master], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError(f"{marker!r} was not painted; last seen: {seen[-400:]!r}")
        seen += os.read(master, 65_536)
