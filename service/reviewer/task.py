"""The task: what the service asks of the agent, read from standard input and believed only after a look."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_BRANCH: Final = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]{1,250}\Z")
_TURNS: Final = 1_000


class TaskError(Exception):
    """The task cannot be worked on; the text says which field and what was expected."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier turn of the conversation."""

    turn: int
    instructions: str


@dataclass(frozen=True, slots=True)
class Task:
    """One turn of a run."""

    run_id: str
    turn: int
    """1-based."""
    branch: str
    default_branch: str | None
    """None: there is none to compare with."""
    instructions: str
    inputs: dict[str, Any]
    conversation: tuple[Turn, ...]


def parse_task(raw: bytes) -> Task:
    """Read a task.

    Args:
        raw: one JSON object in UTF-8.

    Raises:
        TaskError: it is no JSON object, or a field is missing or of another kind.
    """
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"standard input is not one JSON document: {error}") from error
    if not isinstance(document, dict):
        raise TaskError("standard input is JSON but not an object; pass one task object")
    return Task(
        run_id=_run_id(document),
        turn=_turn(document),
        branch=_text(document, "branch"),
        default_branch=_default_branch(document),
        instructions=_text(document, "instructions", needed=True),
        inputs=_inputs(document),
        conversation=_conversation(document),
    )


def _run_id(document: dict[str, Any]) -> str:
    """The run id, which names a file and so may hold nothing but letters, digits, dots, hyphens and underscores."""
    run_id = _text(document, "run_id", needed=True)
    if not _RUN_ID.match(run_id):
        raise TaskError("run_id must be 1 to 128 letters, digits, '.', '_' or '-', and begin with a letter or digit")
    return run_id


def _default_branch(document: dict[str, Any]) -> str | None:
    """The default branch, which becomes an argument of git, so its name has to be one that git could have given."""
    name = _text(document, "default_branch")
    if name and not _BRANCH.match(name):
        raise TaskError("default_branch must be the name of a branch, or null")
    return name or None


def _turn(document: dict[str, Any]) -> int:
    turn = document.get("turn")
    if isinstance(turn, bool) or not isinstance(turn, int) or turn < 1:
        raise TaskError("turn must be a whole number from 1")
    return turn


def _text(document: dict[str, Any], key: str, *, needed: bool = False) -> str:
    """A text field; absent and null count as empty unless it is needed."""
    value = document.get(key)
    if value is None and not needed:
        return ""
    if not isinstance(value, str):
        raise TaskError(f"{key} must be a string")
    return value


def _inputs(document: dict[str, Any]) -> dict[str, Any]:
    inputs = document.get("inputs")
    if inputs is None:
        return {}
    if not isinstance(inputs, dict):
        raise TaskError("inputs must be an object or null")
    return inputs


def _conversation(document: dict[str, Any]) -> tuple[Turn, ...]:
    """The earlier turns, oldest first; an entry that is none is an error, an extra field is not."""
    entries = document.get("conversation") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TaskError("conversation must be a list of objects, the earlier turns")
    return tuple(Turn(_turn(entry), _text(entry, "instructions")) for entry in entries[-_TURNS:])
