"""The agent's task, read from standard input and checked field by field."""

import json
import re
from dataclasses import dataclass
from typing import Final

from service.errors import ServiceError

# The run id names a file, and the branch becomes an argument of git.
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_BRANCH: Final = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]{1,250}\Z")


class TaskError(ServiceError):
    """The task cannot be worked on; the text names the field and the expected value."""


@dataclass(frozen=True, slots=True)
class Task:
    """One turn of a run."""

    run_id: str
    turn: int
    branch: str
    default_branch: str | None
    """None: there is none to compare with."""
    instructions: str
    inputs: dict[str, object]


def parse_task(raw: bytes) -> Task:
    """Read a task from one JSON object in UTF-8; fields other than a task's are ignored.

    Raises:
        TaskError: it is not a JSON object, or a field is missing or of another kind.
    """
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"standard input is not one JSON document: {error}") from error
    if not isinstance(document, dict):
        raise TaskError("standard input is JSON but not an object; pass one task object")
    run_id, default_branch = _text(document, "run_id"), _text(document, "default_branch", "")
    if not _RUN_ID.match(run_id):
        raise TaskError("run_id must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit")
    if default_branch and not _BRANCH.match(default_branch):
        raise TaskError("default_branch must be the name of a branch, or null")
    turn, inputs = document.get("turn"), document.get("inputs")
    if isinstance(turn, bool) or not isinstance(turn, int) or turn < 1:
        raise TaskError("turn must be a whole number from 1")
    if inputs is not None and not isinstance(inputs, dict):
        raise TaskError("inputs must be an object or null")
    branch, instructions = _text(document, "branch", ""), _text(document, "instructions")
    return Task(run_id, turn, branch, default_branch or None, instructions, inputs or {})


def _text(document: dict[str, object], key: str, otherwise: str | None = None) -> str:
    """A text field; `otherwise`, unless it is None, replaces an absent or null one."""
    value = document.get(key)
    value = otherwise if value is None else value
    if not isinstance(value, str):
        raise TaskError(f"{key} must be a string")
    return value
