"""The demo's agent: reads a checkout at the pace of a model, then fixes something or calls the reviewer.

It runs inside the sandbox, which contains nothing of the program except this file and the standard library.
"""

import json
import os
import random
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final

FIRST_S: Final = 3.0
"""For the first review of a branch not made by an agent, so that there are findings soon."""
SHORTEST_S: Final = 6.0
LONGEST_S: Final = 150.0
LINES_MOST: Final = 3
"""The most lines of a file quoted in the log."""
THOUGHTS: Final = (
    "who calls this, and with what?",
    "what happens when it is empty?",
    "is there a test that would have failed?",
    "reading it again with the change in mind",
    "comparing with the neighbouring file",
    "nothing to say here",
)


def main(pace_s: float, edits: Path | None, reviewer: list[str]) -> int:
    """Do one turn in about `pace_s` seconds; return 1 if the repository's own tests fail."""
    raw = sys.stdin.buffer.read()
    task: dict[str, object] = json.loads(raw)
    rng = random.Random(f"{task['run_id']} {task['turn']}")
    seconds = min(LONGEST_S, max(SHORTEST_S, pace_s * rng.lognormvariate(0, 0.7)))
    is_first = edits is None and not (str(task["branch"]).startswith("agent/") or Path("reviews").exists())
    if pace_s:
        _read_all(rng, FIRST_S if is_first else seconds)
    if edits is None:
        return subprocess.run(
            [sys.executable, "-P", "-m", "service.reviewer", *reviewer], input=raw, check=False
        ).returncode
    title = _fix(edits, rng)
    if status := _test():
        return status
    if target := os.environ.get("RUNWARDEN_RESULT"):
        Path(target).write_text(json.dumps({"summary": f"{title}.", "commit_message": title}), "utf-8")
    _say(f"Done: {title}.")
    return 0


def _read_all(rng: random.Random, seconds: float) -> None:
    """Read random files of the checkout until the time is over."""
    until = time.monotonic() + seconds
    files = sorted(path for path in Path().rglob("*") if path.is_file() and ".git" not in path.parts)
    _say(f"{len(files)} files to read.")
    while time.monotonic() < until:
        path = rng.choice(files)
        lines = path.read_text("utf-8", "replace").splitlines()
        _say(f"read {path} ({len(lines)} lines)")
        for number in sorted(rng.sample(range(len(lines)), min(LINES_MOST, len(lines)))):
            time.sleep(min(rng.uniform(0.2, 1.5), max(0.0, until - time.monotonic())))
            _say(f"  {number + 1:>4}  {lines[number]}")
        _say(f"  · {rng.choice(THOUGHTS)}")


def _fix(edits: Path, rng: random.Random) -> str:
    """Make a known change that has not been made yet; return its title."""
    known = tomllib.loads(edits.read_text("utf-8"))["edits"]
    rng.shuffle(known)
    for edit in known:
        path = Path(edit["path"])
        text = path.read_text("utf-8") if path.is_file() else ""
        if edit["find"] in text:
            for find, write in [[edit["find"], edit["write"]], *edit.get("also", [])]:
                text = text.replace(find, write, 1)
            path.write_text(text, "utf-8")
            _say(f"edit {path}: {edit['title']}")
            return str(edit["title"])
    _say("There is nothing left to fix here.")
    return "Find nothing to fix"


def _test() -> int:
    """Run the repository's own tests, if any."""
    if not Path("tests").is_dir():
        return 0
    _say("$ python -m unittest discover -v tests")
    command = [sys.executable, "-B", "-m", "unittest", "discover", "-v", "tests"]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    status = subprocess.run(command, env=environment, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        sys.stderr.write("The tests failed; the change is discarded.\n")
    return int(status != 0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _, pace, edits_file, *rest = sys.argv
    sys.exit(main(float(pace), None if edits_file == "-" else Path(edits_file), rest))
