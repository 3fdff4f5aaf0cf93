"""A preset's log as a conversation, read from real programs' output and from hostile output."""

import json
from itertools import product
from typing import Any

import pytest

from service.agents.options import PresetName
from service.agents.steps import Step, steps_of, window

COMMAND = "ls; cat nothing.txt"
OUTPUT = "README.md\ncat: nothing.txt: No such file or directory\n"
EDIT = {"file_path": "/workspace/README.md", "old_string": "# api", "new_string": "# API"}
AT = "2026-11-24T17:18:12.5Z"
LATER = "2026-11-24T17:18:14.000000Z"
TEN_AND_FIVE = {"input_tokens": 10, "output_tokens": 5}


def claude(kind: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "message": {"role": kind, "content": [*blocks]}, "timestamp": AT}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{kind}", "item": fields}


def acp(report: str, **update: Any) -> dict[str, Any]:
    return {"acp": "update", "at": AT, "update": {"sessionUpdate": report, **update}}


DIFF = {"type": "diff", "path": "/workspace/README.md", "oldText": "# api\n", "newText": "# API\n"}
PATCH = {"type": "file_change", "changes": [{"path": "/workspace/README.md", "kind": "update"}]}
TOKENS = {"token_count": {"input_tokens": 10, "output_tokens": 5}}
EXITED = {"output": OUTPUT, "metadata": {"exit": 1}}
CONTENT = [{"type": "content", "content": {"type": "text", "text": OUTPUT}}]
TRANSCRIPTS: dict[PresetName, list[Any]] = {
    "claude-code": [
        {"type": "system", "subtype": "init", "tools": ["Bash"]},
        claude("assistant", {"type": "thinking", "thinking": "First look."}, {"type": "text", "text": "I look."}),
        claude("assistant", {"type": "tool_use", "id": "c1", "name": "Edit", "input": EDIT}),
        claude("assistant", {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": COMMAND}}),
        claude("user", {"type": "tool_result", "tool_use_id": "c2", "content": OUTPUT, "is_error": True}),
        {"type": "result", "subtype": "success", "result": "Done.", "duration_ms": 2193, "usage": TEN_AND_FIVE},
    ],
    "codex": [
        "(node:2) Warning: experimental",
        item("completed", type="reasoning", text="First look."),
        item("completed", type="agent_message", text="I look."),
        item("started", id="c1", **PATCH),
        item("completed", id="c1", status="completed", **PATCH),
        item("started", type="command_execution", id="c2", command=f'/bin/bash -lc "{COMMAND}"', status="in_progress"),
        item("completed", type="command_execution", id="c2", aggregated_output=OUTPUT, exit_code=1, status="failed"),
        item("completed", type="todo_list", items=[{"text": "Look", "completed": True}, {"text": "Write"}]),
        {"type": "turn.completed", "usage": TEN_AND_FIVE | {"cached_input_tokens": 3}},
    ],
    "acp": [
        {"acp": "session", "at": AT, "id": "s-1"},
        acp("agent_thought_chunk", content={"type": "text", "text": "First look."}),
        acp("agent_message_chunk", content={"type": "text", "text": "I "}),
        acp("agent_message_chunk", content={"type": "text", "text": "look."}),
        acp("tool_call", toolCallId="c1", kind="edit", title="Edit README.md", content=[DIFF]),
        acp("tool_call", toolCallId="c2", kind="execute", rawInput={"command": ["/bin/bash", "-lc", COMMAND]}),
        acp("tool_call_update", toolCallId="c2", status="completed", content=CONTENT, rawOutput=EXITED)
        | {"seconds": 1.62},
        acp("tool_call", toolCallId="c3", kind="read", title="read", rawInput={"filePath": "/workspace/README.md"}),
        {"acp": "end", "at": LATER, "stop_reason": "end_turn", "usage": TOKENS, "seconds": 2.193},
    ],
    "aider": ["I look.", "", "README.md", "Tokens: 10 sent, 5 received.", "Applied edit to README.md"],
}
"""One turn's output of each program (or of `acp_client.py` for it), shortened; one for each reader."""


def log(preset: PresetName) -> bytes:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in TRANSCRIPTS[preset])
    return "".join(f"{line}\n" for line in (f"{LATER} attempt 1", *lines)).encode()


def said(steps: list[Step]) -> list[tuple[object, ...]]:
    return [(step.kind, step.text, *(["failed"] if step.failed else [])) for step in steps]


def test_each_program_s_output_is_a_conversation() -> None:
    """The steps have its words, commands, edits, results and tokens, and the service's own lines.

    Consecutive lines that are not events are one step.
    """
    for preset in TRANSCRIPTS:
        steps = steps_of(preset, log(preset))
        told = said(steps)

        assert told[0] == ("log", "attempt 1")
        assert ("printed" if preset == "aider" else "said") in [kind for kind, *_ in told]
        assert any("I look." in str(text) for _, text, *_ in told)
        if preset != "aider":
            assert told[told.index(("ran", COMMAND)) + 1] == ("result", OUTPUT, "failed")
            assert [step.tokens for step in steps if step.tokens] == [15]
            assert any(kind == "edited" and text.startswith("README.md") for kind, text, *_ in told)
    assert ("edited", "README.md\n- # api\n+ # API") in said(steps_of("claude-code", log("claude-code")))
    assert ("used", "read README.md") in said(steps_of("acp", log("acp")))

    data = b'one\r\ntwo\n{"type": "assistant", broken\n[1]\n' + b"[" * 99_999 + b"\n" + log("claude-code")
    first = steps_of("claude-code", data)[0]

    assert first.kind == "printed"
    assert first.text.startswith('one\ntwo\n{"type": "assistant", broken\n[1]\n[[[')


NESTED = [[]]
for _ in range(400):
    NESTED = [NESTED]
VALUES: tuple[Any, ...] = (5, 1e999, 10**400, "\ud800\x1b[2J", None, True, [5], {"type": ["text"]}, NESTED)
FIELDS = ("type", "message", "item", "timestamp", "usage", "result", "content", "duration_ms", "update", "seconds")
PARTS = ("text", "input", "command", "changes", "items", "exit_code", "content", "rawInput", "rawOutput", "toolCallId")


@pytest.mark.parametrize("preset", TRANSCRIPTS)
def test_forged_events_are_read_as_far_as_possible(preset: PresetName) -> None:
    """Each step can be sent as JSON in UTF-8, whatever the events contain."""
    forged = []
    for event, value in product([one for one in TRANSCRIPTS[preset] if isinstance(one, dict)], VALUES):
        forged += [event | {field: value} for field in FIELDS]
        for key in ("message", "item", "update"):
            forged += [event | {key: event[key] | {part: value}} for part in PARTS if key in event]
    steps = steps_of(preset, "\n".join(map(json.dumps, forged)).encode())

    assert steps or preset == "aider"
    json.dumps([step.document() for step in steps], ensure_ascii=False, allow_nan=False).encode()


class Log:
    """A log with this many bytes so far."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, start: int, limit: int) -> bytes:
        return self.data[start : start + limit]


def pieces(preset: PresetName, data: bytes, *, at_once: int) -> list[Step]:
    """Follow a log that grows by this many bytes, and return its steps."""
    steps, offset, log = list[Step](), 0, Log(data)
    for size in (*range(at_once, len(data), at_once), len(data)):
        log.size = size
        start, following, more = window(preset, log.read, size, offset, 0, is_ended=size == len(data))
        assert start == offset
        offset = following
        steps += more
    assert offset == len(data)
    return steps


def words(steps: list[Step]) -> str:
    return "".join(step.text for step in steps).replace("\n", "")


def test_a_log_gives_each_step_once_in_both_directions() -> None:
    """A piece may end within a line or a message.

    Backwards, the parts join up; a line longer than a part is in one of them.
    """
    for preset in TRANSCRIPTS:
        whole = steps_of(preset, log(preset))
        for at_once in (7, 100, 1 << 20):
            found = pieces(preset, log(preset), at_once=at_once)

            assert words(found) == words(whole)
            assert preset == "aider" or said(found) == said(whole)

    for preset in ("claude-code", "acp"):
        data = log(preset) * 3
        steps, before = list[Step](), len(data)
        while before:
            start, following, more = window(preset, Log(data).read, len(data), -150, before, is_ended=True)
            assert following == before
            before, steps = start, [*more, *steps]

        assert words(steps) == words(steps_of(preset, data))


def test_known_times_and_figures_are_in_steps() -> None:
    claude, over_acp = (steps_of(preset, log(preset)) for preset in ("claude-code", "acp"))
    run = [step for step in claude if step.call == "c2"]

    assert [(step.kind, step.at) for step in run] == [("ran", "2026-11-24T17:18:12.500000Z"), ("result", run[0].at)]
    assert (claude[-1].kind, claude[-1].seconds) == ("ended", 2.193)
    assert [step.seconds for step in over_acp if step.seconds] == [1.62, 2.193]
