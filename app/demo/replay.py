"""The demo's fixer: replays a recorded session of Claude Code, with its edits and commands carried out for real.

It runs inside the sandbox by the machine's own Python, with this file and the standard library alone.
"""

import json
import os
import random
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ABOUT: Final = (
    "Scripted stand-in agent: no model, no account. It replays a session of {program} that was recorded with a "
    "scripted model; its edits and commands are carried out here."
)
SHORTEST_S: Final = 6.0
MAX_S: Final = 150.0
WORKSPACE: Final = "/workspace/"
Event = dict[str, Any]


def main(sessions: Path, pace_s: float) -> int:
    """Replay the session for this task or, without one, the first that fits this checkout; return the exit code."""
    task, begun = sys.stdin.read(), time.monotonic()
    lines = [file.read_text("utf-8").splitlines() for file in sorted(sessions.glob("*.jsonl"))]
    known = [(json.loads(first), [json.loads(line) for line in rest]) for first, *rest in lines]
    fitting = [session for session in known if fits(session[1])]
    if not fitting:
        print("Scripted stand-in agent: no model, no account. No recorded session fits this checkout.")
        print(json.dumps({"type": "result", "subtype": "success", "result": "There is nothing left to fix here."}))
        return 0
    about, events = next((session for session in fitting if session[0]["task"] in task), fitting[0])
    print(ABOUT.format(**about), flush=True)
    seconds = 0.0
    if pace_s:
        seconds = min(MAX_S, max(SHORTEST_S, pace_s * random.lognormvariate(0, 0.7)))
    output = ""
    failed = False
    quiet = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    for event in events:
        time.sleep(seconds / len(events))
        for block in blocks(event):
            arguments = block.get("input", {})
            if "old_string" in arguments:
                path = Path(arguments["file_path"].removeprefix(WORKSPACE))
                old, new = arguments["old_string"], arguments["new_string"]
                path.write_text(path.read_text("utf-8").replace(old, new, 1), "utf-8")
            elif "command" in arguments:
                command = arguments["command"].replace("python3", shlex.quote(sys.executable))
                done = subprocess.run(["sh", "-c", command], env=quiet, capture_output=True, text=True, check=False)
                output = (done.stdout + done.stderr).rstrip()
                failed = done.returncode != 0
            elif block.get("type") == "tool_result" and "is_error" in block:
                block["content"], block["is_error"] = output, failed
        event["timestamp"] = datetime.now(UTC).isoformat()
        if "duration_ms" in event:
            event["duration_ms"] = int((time.monotonic() - begun) * 1000)
        print(json.dumps(event), flush=True)
        if failed and event["type"] == "user":
            print("The tests failed, and the recorded session has no answer to that: the change is discarded.")
            return 1
    return 0


def blocks(event: Event) -> list[Event]:
    content = event.get("message", {}).get("content", [])
    return content if isinstance(content, list) else []


def fits(events: list[Event]) -> bool:
    """Whether the checkout has every text that a session replaces."""
    edits = [block["input"] for event in events for block in blocks(event) if "old_string" in block.get("input", {})]
    paths = [(Path(edit["file_path"].removeprefix(WORKSPACE)), edit["old_string"]) for edit in edits]
    return all(path.is_file() and old in path.read_text("utf-8") for path, old in paths)


if __name__ == "__main__":
    # The first arguments are the ones that Claude Code would receive.
    sys.exit(main(Path(sys.argv[-2]), float(sys.argv[-1])))
