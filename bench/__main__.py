"""`python -m bench [NAME...] [--runs N]`: measures what is named, or everything, and prints one line a figure."""

import argparse
import os
import platform
import sqlite3
import sys

from bench import commands, first_paint, store, windows
from bench.figures import Figure

SUBJECTS = {"commands": commands, "first_paint": first_paint, "store": store, "windows": windows}


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject", nargs="*", choices=[*SUBJECTS, []], help="what to measure; everything by default")
    parser.add_argument("--runs", type=int, default=100_000, help="how many cached runs to measure with")
    arguments = parser.parse_args()
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, "
        f"{arguments.runs:,} runs; medians\n"
    )
    for name in arguments.subject or SUBJECTS:
        for figure in SUBJECTS[name].measure(arguments.runs):
            print(line(figure), flush=True)
    return 0


def line(figure: Figure) -> str:
    """A figure as one line: what, how long, and how many times the yardstick."""
    return f"{figure.name:<58} {figure.seconds * 1e3:>10.1f} ms   {figure.ratio:>6.2f} x {figure.yardstick}"


if __name__ == "__main__":
    sys.exit(main())
