"""How long a command takes from nothing, against a Python that does nothing."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.figures import Figure, in_turn, timed

COMMANDS = (["--version"], ["--help"], ["config", "path"], ["runs", "list", "--cached", "--json"])


def measure(_: int) -> Iterator[Figure]:
    """A figure for each command."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "HOME": folder,
            "RUNWARDEN_DATA_DIR": folder,
            "RUNWARDEN_BASE_URL": "http://127.0.0.1:9/v1",
            "RUNWARDEN_TOKEN": "bench",
        }
        for command in COMMANDS:
            argv = [sys.executable, "-m", "app", *command]
            seconds, bare = in_turn(lambda argv=argv: run(argv, env), lambda: run([sys.executable, "-c", "pass"], env))
            yield Figure(f"runwarden {' '.join(command)}", seconds, "python -c pass", bare)


def run(argv: list[str], env: dict[str, str]) -> float:
    """Seconds until the process has ended."""
    return timed(lambda: subprocess.run(argv, env=env, check=True, capture_output=True))
