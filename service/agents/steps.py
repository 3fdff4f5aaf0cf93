"""A turn's log as the steps of a conversation: the agent's messages, commands and edits, with their results.

Only the log is stored. Steps are read from it on request, line by line; a line that the program's reader does not know
becomes a step as it is. An agent can print anything, and so forge any step.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeGuard

from service.agents.options import PresetName
from service.agents.outcome import is_remark
from service.clock import parse_rfc3339, rfc3339
from service.text import items, table

StepKind = Literal["said", "thought", "ran", "edited", "used", "result", "answered", "ended", "error", "printed", "log"]
"""`used`: a tool that is neither a command nor an edit. `answered`: an answer of the model, with its tokens.
`printed`: a line that is no event. `log`: a line that the service wrote."""
MAX_LINE: Final = 1 << 20
_OWN_LINE: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) (.*)", re.DOTALL)
_TREE: Final = "/workspace/"
"""The path of the checkout in the sandbox."""
_PATHS: Final = ("file_path", "filePath", "notebook_path", "path")
_OLD: Final = ("old_string", "oldString", "old_str", "oldText")
_NEW: Final = ("new_string", "newString", "new_str", "content", "file_text", "new_source", "newText")
_MAX_FIGURE: Final = 1e14
"""No figure is larger."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; None means unknown."""

    kind: StepKind
    text: str = ""
    """Its text; for an edit the file, and below it the lines of its difference."""
    at: str | None = None
    """The time of it, as RFC 3339."""
    call: str | None = None
    """The id that a result shares with the step that it belongs to."""
    seconds: float | None = None
    tokens: int | None = None
    failed: bool = False
    joins: bool = False
    """Whether it continues the text of the step before, if that is of the same kind."""
    line: int = 0
    """The line on which it begins, counted from 0 in the piece that was read."""

    def document(self) -> dict[str, object]:
        """Return the step as the API shows it, in valid UTF-8."""
        document = asdict(self) | {"text": self.text.encode("utf-8", "replace").decode()}
        del document["joins"], document["line"]
        return document


Event = dict[str, Any]


def window(
    preset: PresetName, read: Callable[[int, int], bytes], size: int, offset: int, before: int, *, is_ended: bool
) -> tuple[int, int, list[Step]]:
    """Return where the steps begin, where to continue, and the steps of the whole lines from an offset on.

    A negative offset means the last `-offset` bytes. At most 1 MiB is read, with `read(offset, limit)`, and nothing
    from `before` on, unless that is 0. The middle of a longer line is left out. A line or message that may still grow
    is left for a later call.
    """
    last = min(before or size, size)
    start = min(offset, last) if offset >= 0 else max(0, last + max(offset, -MAX_LINE))
    end = min(start + MAX_LINE, last)
    # The byte before it shows whether a line begins there.
    data = read(max(0, start - 1), end - max(0, start - 1))
    lines = data.partition(b"\n")[2] if start else data
    begin = end - len(lines)
    if offset < 0 and begin == end and -offset < min(MAX_LINE, last):
        return window(preset, read, size, -MAX_LINE, before, is_ended=is_ended)
    following = end
    if not (end == last and (is_ended or before)):
        whole = lines[: lines.rfind(b"\n") + 1]
        if not whole and len(lines) == MAX_LINE:
            return start, end, [Step("printed", "A line of more than 1 MiB: the raw log has it.")]
        lines = whole[: complete_bytes(preset, whole)] or (whole if end - start == MAX_LINE else b"")
        following = begin + len(lines)
    return begin if offset < 0 and begin < end else start, following, steps_of(preset, lines)


def steps_of(preset: PresetName, data: bytes) -> list[Step]:
    """Return the steps of a preset's log, given whole lines of it; neighbours that belong together are one."""
    steps: list[tuple[Step, list[str]]] = []
    for at, line in enumerate(data.removesuffix(b"\n").split(b"\n")):
        for step in _of_line(preset, line.removesuffix(b"\r")):
            last, texts = steps[-1] if steps else (step, [])
            is_next = step.kind == "printed" and last.line + len(texts) == at
            if texts and last.kind == step.kind and (step.joins or is_next):
                texts.append(step.text if step.joins else f"\n{step.text}")
            elif step.text.strip() or step.kind in {"answered", "ended", "result"}:
                steps.append((replace(step, line=at), [step.text]))
    return [replace(step, text="".join(texts)) for step, texts in steps]


def complete_bytes(preset: PresetName, data: bytes) -> int:
    """Return how many bytes of whole lines come before a message that may continue in the next line."""
    end = len(data)
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if not any(step.joins for step in _of_line(preset, data[begin : end - 1])):
            break
        end = begin
    return end


def _of_line(preset: PresetName, line: bytes) -> list[Step]:
    if own := _OWN_LINE.fullmatch(line):
        return [Step("log", own[2].decode("utf-8", "replace"), own[1].decode())]
    if line.startswith(b"{") and preset != "aider":
        try:
            event = json.loads(line)
            if isinstance(event, dict):
                reader = {"claude-code": _claude, "codex": _codex}.get(preset, _acp)
                return list(reader(event))
        except (ValueError, RecursionError):
            pass
    text = line.decode("utf-8", "replace")
    if preset != "aider":
        return [Step("printed", text)]
    if text.startswith("Applied edit to "):
        return [Step("edited", text.removeprefix("Applied edit to "))]
    if re.match(r"litellm\.\w*Error", text):
        return [Step("error", text, failed=True)]
    return [Step("answered" if text.startswith("Tokens: ") else "printed", text)]


def _claude(event: Event) -> Iterator[Step]:
    at, usage = event.get("timestamp"), table(event.get("usage"))
    for block in _parts(event.get("message"), "content"):
        match block.get("type"):
            case "text" if event.get("type") == "assistant":
                yield _step("said", block.get("text"), at)
            case "thinking":
                yield _step("thought", block.get("thinking"), at)
            case "tool_use":
                yield _call(block.get("name"), block.get("input"), block.get("id"), at)
            case "tool_result":
                failed = block.get("is_error") is True
                yield _step("result", block.get("content"), at, block.get("tool_use_id"), failed=failed)
    if event.get("type") == "result":
        failed = event.get("is_error") is True or event.get("subtype") not in (None, "success")
        text = (event.get("result") or event.get("errors") or event.get("subtype")) if failed else ""
        counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        seconds = _seconds(event.get("duration_ms"))
        tokens = _total(usage, *counted)
        yield _step("ended", text, at, seconds=seconds, tokens=tokens, failed=failed)
    elif event.get("subtype") == "api_retry":
        answer = f"{_text(event.get('error_status'))} {_text(event.get('error'))}".strip()
        yield _step("error", f"the model's answer: {answer}; it tries again", at)


def _codex(event: Event) -> Iterator[Step]:
    kind, item = event.get("type"), table(event.get("item"))
    call, failed = item.get("id"), item.get("status") == "failed"
    match kind, item.get("type"):
        case "item.completed", "agent_message":
            yield _step("said", item.get("text"))
        case "item.completed", "reasoning":
            yield _step("thought", item.get("text"))
        case "item.started", "command_execution":
            yield _step("ran", _bare(_text(item.get("command"))), call=call)
        case "item.completed", "command_execution":
            yield _step("result", item.get("aggregated_output"), call=call, failed=failed)
        case "item.completed", "file_change":
            files = [f"{_path(row.get('path'))} ({_text(row.get('kind'))})" for row in _parts(item, "changes")]
            yield _step("edited", files, failed=failed)
        case "item.completed", "error":
            yield _step("error", item.get("message"))
        case "item.completed", str(name):
            yield _call(name, {key: value for key, value in item.items() if key not in {"id", "type"}}, call, None)
        case "turn.completed", _:
            yield _step("ended", tokens=_total(table(event.get("usage")), "input_tokens", "output_tokens"))
        case "turn.failed" | "error", _:
            yield _step("error", table(event.get("error")).get("message") or event.get("message"), failed=True)


def _acp(event: Event) -> Iterator[Step]:
    at, update = event.get("at"), table(event.get("update"))
    text = table(update.get("content")).get("text")
    call = update.get("toolCallId")
    title = _text(update.get("title"))
    arguments = table(update.get("rawInput"))
    result = update.get("rawOutput")
    parts = _parts(update, "content")
    match event.get("acp"), update.get("sessionUpdate"):
        case "update", "agent_message_chunk":
            yield _step("printed", text, at) if is_remark(update) else _step("said", text, at, joins=True)
        case "update", "agent_thought_chunk":
            yield _step("thought", text, at, joins=True)
        case "update", "plan":
            rows = [f"- {_text(row.get('content'))} ({_text(row.get('status'))})" for row in _parts(update, "entries")]
            yield _step("thought", "\n".join(rows), at)
        case "update", "tool_call" if diffs := [part for part in parts if part.get("type") == "diff"]:
            yield from (_call("", diff, call, at) for diff in diffs)
        case "update", "tool_call" if (command := arguments.get("command")) or update.get("kind") == "execute":
            line = _bare(shlex.join(map(_text, command))) if isinstance(command, list) else command
            yield _step("ran", line or title, at, call)
        case "update", "tool_call":
            step = _call(title, arguments, call, at)
            # A title of one word is the tool's name.
            yield step if step.kind == "edited" or " " not in title else _step("used", title, at, call)
        case "update", "tool_call_update":
            texts = [_text(table(part.get("content")).get("text")) for part in parts if part.get("type") == "content"]
            output = table(result)
            status = output.get("exit_code", table(output.get("metadata")).get("exit"))
            failed = update.get("status") == "failed" or status not in (0, None)
            shown = "\n".join(texts) or output.get("formatted_output") or (result if isinstance(result, str) else "")
            yield _step("result", shown, at, call, seconds=_seconds(event.get("seconds"), 1), failed=failed)
        case "permission", _ if event.get("allowed") is not True:
            yield _step("error", f"not allowed: {_text(event.get('title'))}", at)
        case "new_session", _:
            yield _step("error", "the program does not have the session any more: it began a new one", at)
        case "end", _:
            counts = table(table(event.get("usage")).get("token_count"))
            tokens = _total(counts, "totalTokens", "input_tokens", "output_tokens")
            yield _step("ended", "", at, seconds=_seconds(event.get("seconds"), 1), tokens=tokens)
        case "error", _:
            yield _step("error", event.get("message"), at, failed=True)
        case None, _:
            yield _step("printed", event)


def _step(
    kind: StepKind, text: object = "", at: object = None, call: object = None, *, failed: bool = False, **known: Any
) -> Step:
    name = call[:200] if isinstance(call, str) and call.isprintable() else None
    time = None
    with contextlib.suppress(ValueError, OverflowError):
        if _is_number(at):
            # Milliseconds since 1970.
            time = rfc3339(int(at * 1000))
        elif isinstance(at, str):
            time = rfc3339(parse_rfc3339(at, round_up=False))
    return Step(kind, _text(text), time, name, failed=failed, **known)


def _call(name: object, values: object, call: object, at: object) -> Step:
    """Return a call of a tool, whose arguments show a command, an edit, or any other use."""
    arguments = table(values)
    texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
    path = next((_path(texts[key]) for key in _PATHS if key in texts), None)
    edits = [
        f"{mark} {line}"
        for edit in (arguments, *_parts(arguments, "edits"))
        for mark, keys in (("-", _OLD), ("+", _NEW))
        for line in next((edit[key] for key in keys if isinstance(edit.get(key), str)), "").splitlines()
    ]
    if "command" in texts:
        return _step("ran", texts["command"], at, call)
    if path is not None and edits:
        return _step("edited", [path, *edits], at, call)
    is_plain = all(isinstance(value, str | int | float) for value in arguments.values())
    words = " ".join(map(_path, arguments.values())) if is_plain else _text(arguments)
    return _step("used", f"{_text(name)} {words}".strip(), at, call)


def _bare(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in {"-lc", "-c"} else command  # noqa: PLR2004 — shell, option, command


def _path(value: object) -> str:
    return _text(value).removeprefix(_TREE)


def _text(value: object) -> str:
    """Return any value as text: a text unchanged, a list as the texts of its parts, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(table(part).get("text") or part) for part in value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _parts(value: object, name: str) -> list[Event]:
    return [table(part) for part in items(table(value).get(name))]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_FIGURE


def _seconds(value: object, unit: int = 1000) -> float | None:
    return value / unit if _is_number(value) else None


def _total(counted: Event, *names: str) -> int | None:
    return sum(int(counted[name]) for name in names if _is_number(counted.get(name))) or None
