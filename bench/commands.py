"""How long a command takes from nothing, and how much memory a list of everything."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.busy import peer
from bench.figures import Figure
from bench.terminal import environment

COMMANDS = {"--version": 5, "--help": 5, "config path": None, "runs list --cached --json": 15}
"""Each with how often a bare Python could start in that time."""
ROUNDS = 12
MAX_LISTED = 100_000
PEAK = (
    "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], stdout=s.DEVNULL, check=True);"
    " print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
)
MEGABYTES = 100
"""What a list of any length may take."""


def measure(runs: int) -> Iterator[Figure]:
    """A figure for each command, and the memory that a list of so many runs takes, live and cached."""
    with tempfile.TemporaryDirectory() as folder:
        env, count = environment(folder), min(runs, MAX_LISTED)
        with peer(count) as base_url:
            for where in ([], ["--cached"]):
                listing = ["runs", "list", "--all", "--json", *where]
                yield Figure(
                    f"memory of runwarden {' '.join(listing)}, {count:,} runs",
                    peak_bytes([sys.executable, "-m", "app", *listing], {**env, "RUNWARDEN_BASE_URL": base_url}),
                    f"{MEGABYTES} MB", MEGABYTES * 1e6, unit="MB", factor=1e-6, bar=1,
                )  # fmt: skip
        for command, bar in COMMANDS.items():
            argvs = [sys.executable, "-m", "app", *command.split()], [sys.executable, "-c", "pass"]
            taken = [[cpu_s(argv, env) for argv in argvs] for _ in range(ROUNDS)]
            seconds, bare = (min(times) for times in zip(*taken, strict=True))
            yield Figure(f"processor time of runwarden {command}", seconds, "python -c pass", bare, bar=bar)


def peak_bytes(argv: list[str], env: dict[str, str]) -> float:
    """The most memory that the process held at a time."""
    # Begun by a small process: what its parent held when it was forked counts as its own.
    found = subprocess.run([sys.executable, "-c", PEAK, *argv], env=env, stdout=subprocess.PIPE, text=True, check=True)
    # Linux counts in KiB, macOS in bytes.
    return int(found.stdout) * (1 if sys.platform == "darwin" else 1024)


def cpu_s(argv: list[str], env: dict[str, str]) -> float:
    """Seconds of a processor that the process took: waiting for others on a busy machine is no part of it."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), argv)
    return usage.ru_utime + usage.ru_stime
