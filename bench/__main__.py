"""`python -m bench [NAME...] [--runs N]`: measures what is named, or everything, and prints one line a figure."""

import argparse
import os
import platform
import sqlite3
import sys

from bench import (
    backfill,
    busy,
    commands,
    first_paint,
    keys,
    peers,
    results,
    service,
    store,
    tenants,
    turns,
    windows,
)
from bench.figures import Figure

SUBJECTS = {
    "first_paint": first_paint.measure,
    "keys": keys.measure,
    "results": results.measure,
    "busy": busy.measure,
    "rest": busy.written_at_rest,
    "windows": windows.measure,
    "store": store.measure,
    "backfill": backfill.measure,
    "commands": commands.measure,
    "service": service.measure,
    "tenants": tenants.measure,
    "turns": turns.measure,
    "peers": peers.measure,
}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject", nargs="*", choices=[*SUBJECTS, []], help="what to measure; everything by default")
    parser.add_argument("--runs", type=int, default=1_000_000, help="how many cached runs to measure with")
    arguments = parser.parse_args()
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, "
        f"{arguments.runs:,} runs, load {os.getloadavg()[0]:.1f}; medians\n"
    )
    for name in arguments.subject or SUBJECTS:
        for figure in SUBJECTS[name](arguments.runs):
            print(line(figure), flush=True)
    return 0


def line(figure: Figure) -> str:
    """A figure as one line: what, how long, how many times the yardstick, and its bar."""
    value = f"{figure.value * figure.factor:>10.1f} {figure.unit:<2}"
    return f"{figure.name:<58} {value}   {figure.ratio:>6.2f} x {figure.yardstick:<24} {figure.verdict}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
