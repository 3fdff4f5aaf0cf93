"""The demo's reviewers: a scripted stand-in for a model reads a checkout at its pace, then calls the bundled reviewer.

It runs inside the sandbox, which contains nothing of the program except this file and the standard library.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

FIRST_S: Final = 3.0
"""The seconds for the first review of a branch not made by an agent, so that there are findings soon."""
SHORTEST_S: Final = 6.0
MAX_S: Final = 150.0
ABOUT: Final = (
    "Scripted stand-in agent: no model, no account. It reads the files at the pace of a model; "
    "its review is the bundled reviewer's, which goes by fixed rules."
)


def main(pace_s: float, reviewer: list[str]) -> int:
    """Do one turn in about `pace_s` seconds; return the reviewer's exit code."""
    raw = sys.stdin.buffer.read()
    task: dict[str, object] = json.loads(raw)
    rng = random.Random(f"{task['run_id']} {task['turn']}")
    seconds = min(MAX_S, max(SHORTEST_S, pace_s * rng.lognormvariate(0, 0.7)))
    is_first = not (str(task["branch"]).startswith("agent/") or Path("reviews").exists())
    print(ABOUT, flush=True)
    files = sorted(path for path in Path().rglob("*") if path.is_file() and ".git" not in path.parts)
    for path in files:
        print(f"read {path} ({len(path.read_bytes().splitlines())} lines)", flush=True)
        if pace_s:
            time.sleep((FIRST_S if is_first else seconds) / len(files))
    return subprocess.run(
        [sys.executable, "-P", "-m", "service.reviewer", *reviewer], input=raw, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
