"""Records the demo's sample sessions (`make transcripts`): Claude Code at work, with a model that is a script.

The program, its tools, their results and its output are real; what the model says comes from `transcripts.toml`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.demo.world import SAMPLES
from tests.lab import Received, Step
from tests.service.agents.model_server import ModelServer, Reply, anthropic_events

WORKSPACE: Final = Path("/workspace")
"""Where an agent finds its checkout in the sandbox."""
KEPT: Final = frozenset(
    (
        *("type", "subtype", "cwd", "model", "claude_code_version", "message", "session_id", "timestamp"),
        *("stop_reason", "duration_ms", "num_turns", "is_error", "result"),
    )
)
"""The keys of an event that are kept; the rest is long, and no part of the log as it is shown."""
TESTS: Final = "python3 -m unittest discover -s tests"


@dataclass(kw_only=True, eq=False)
class ScriptedModel(ModelServer):
    """Says its words in order, one answer for each question."""

    answers: list[Reply] = field(default_factory=list)

    def answer(self, request: Received) -> Step:
        """Give the next answer to a question, and what the server gives to anything else."""
        if not request.path.endswith("/messages"):
            return super().answer(request)
        return self.stream(anthropic_events(self.answers.pop(0)))


def script(edit: dict[str, Any]) -> list[Reply]:
    """What the model says and does about one edit."""
    path = str(WORKSPACE / edit["path"])
    changes = [[edit["find"], edit["write"]], *edit.get("also", [])]
    edits = [("Edit", {"file_path": path, "old_string": find, "new_string": write}) for find, write in changes]
    calls = [("Read", {"file_path": path}), *edits, ("Bash", {"command": edit.get("check", TESTS)})]
    words = [f"I'll start by reading {edit['path']}.", edit["why"], *([""] * (len(edits) - 1)), edit["then"]]
    replies = [
        Reply(word, call=call, call_id=f"toolu_{number}")
        for number, (word, call) in enumerate(zip(words, calls, strict=True))
    ]
    return [*replies, Reply(edit["done"])]


def record(program: str, edit: dict[str, Any]) -> list[dict[str, Any]]:
    """Let the program do one task in a new checkout; return its events."""
    shutil.copytree(SAMPLES / edit["repository"] / "main", WORKSPACE)
    try:
        with tempfile.TemporaryDirectory() as home, ScriptedModel(answers=script(edit)) as model:
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": home,
                "ANTHROPIC_BASE_URL": model.base_url.removesuffix("/v1"),
                "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                "IS_SANDBOX": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            options = ("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
            done = subprocess.run(
                [program, *options, "--model", "stand-in"],
                input=edit["task"],
                env=environment,
                cwd=WORKSPACE,
                text=True,
                capture_output=True,
                check=True,
            )
    finally:
        shutil.rmtree(WORKSPACE)
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for event in events:
        if "message" in event:
            event["message"] = {key: event["message"][key] for key in ("role", "content")}
    return [{key: value for key, value in event.items() if key in KEPT} for event in events]


def main() -> None:
    """Record every session; a flaky test of the samples may fail a recording, which is then repeated."""
    program = shutil.which("claude") or sys.exit("Claude Code is not on PATH: npm install @anthropic-ai/claude-code")
    for name, edit in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items():
        while True:
            events = record(program, edit)
            if "FAILED (" not in json.dumps(events):
                break
        version = next(event["claude_code_version"] for event in events if "claude_code_version" in event)
        about = {key: edit[key] for key in ("repository", "task")} | {"program": f"Claude Code {version}"}
        lines = [json.dumps(one, ensure_ascii=False) for one in (about, *events)]
        (SAMPLES / "sessions" / f"{name}.jsonl").write_text("\n".join([*lines, ""]), "utf-8")
        print(f"{name}: {len(events)} events")


if __name__ == "__main__":
    main()
