"""How long a command takes from nothing, and how much memory a list of everything."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.busy import peer
from bench.figures import Figure, in_turn, timed

COMMANDS = (["--version"], ["--help"], ["config", "path"], ["runs", "list", "--cached", "--json"])
MOST_LISTED = 100_000
MEGABYTES = 100
"""What a list of any length may take."""


def measure(runs: int) -> Iterator[Figure]:
    """A figure for each command, and the memory that a list of so many runs takes, live and cached."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "HOME": folder,
            "RUNWARDEN_DATA_DIR": folder,
            "RUNWARDEN_BASE_URL": "http://127.0.0.1:9/v1",
            "RUNWARDEN_TOKEN": "bench",
        }
        count = min(runs, MOST_LISTED)
        with peer(count) as base_url:
            for where in ([], ["--cached"]):
                listing = ["runs", "list", "--all", "--json", *where]
                yield Figure(
                    f"memory of runwarden {' '.join(listing)}, {count:,} runs",
                    peak_bytes([sys.executable, "-m", "app", *listing], {**env, "RUNWARDEN_BASE_URL": base_url}),
                    f"{MEGABYTES} MB", MEGABYTES * 1e6, unit="MB", factor=1e-6, bar=1,
                )  # fmt: skip
        for command in COMMANDS:
            argv = [sys.executable, "-m", "app", *command]
            seconds, bare = in_turn(lambda argv=argv: run(argv, env), lambda: run([sys.executable, "-c", "pass"], env))
            yield Figure(f"runwarden {' '.join(command)}", seconds, "python -c pass", bare)


def peak_bytes(argv: list[str], env: dict[str, str]) -> float:
    """The most memory that the process held at a time."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), argv)
    # Linux counts in KiB, macOS in bytes.
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(argv: list[str], env: dict[str, str]) -> float:
    """Seconds until the process has ended."""
    return timed(lambda: subprocess.run(argv, env=env, check=True, capture_output=True))
