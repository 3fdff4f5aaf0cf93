"""A named agent's inputs, as its configuration declares them, and the prompt that they are filled into."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, Field, JsonValue, model_validator

from service.errors import ServiceError

INSTRUCTIONS: Final = "instructions"
"""The input that every agent takes: its task, in free text."""
_DEFAULT_INSTRUCTIONS: Final = "Do what you are configured for."
_FIELD: Final = re.compile(r"\{(?=[A-Za-z_])(?:([\w.-]+)\.)?([\w-]*)\}", re.ASCII)
"""A field, with its scope (`inputs`) and its name."""
_ALMOST_PLACEHOLDER: Final = re.compile(r"\{\s*inputs?\s*[.\[][^{}]*\}")
"""A field as other template languages write it, which would reach the agent unchanged."""
_KINDS: Final = {
    "text": ("a text", str),
    "integer": ("a whole number", int),
    "number": ("a number", int | float),
    "boolean": ("true or false", bool),
}
_SHOWN: Final = 60
"""Characters of a wrong value that its error shows."""

InputName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]


class InputError(ServiceError):
    """The agent does not accept an input; the text names it."""


class AgentInput(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True):
    """The declaration of an input."""

    type: Literal["text", "integer", "number", "boolean", "any"] = "text"
    description: Annotated[str, Field(max_length=300)] = ""
    required: bool = False
    default: JsonValue = None
    choices: tuple[JsonValue, ...] = ()
    """The only values that it may have; empty: any of its type."""

    @model_validator(mode="after")
    def check_values(self) -> Self:
        for value in self.choices:
            if fault := _type_fault(self.type, value):
                raise ValueError(f"choices: {fault}")
        if self.default is None:
            return self
        if self.required:
            raise ValueError("a required input has no default: remove one of the two")
        if fault := self.fault(self.default):
            raise ValueError(f"default: {fault}")
        return self

    def fault(self, value: JsonValue) -> str | None:
        """Return a description of the expected value; None if the value is valid."""
        # 1 equals true in Python, but not in JSON.
        is_chosen = any(item == value and isinstance(item, bool) == isinstance(value, bool) for item in self.choices)
        if self.choices and not is_chosen:
            return f"one of {', '.join(map(_as_json, self.choices))} is expected, not {_as_json(value)}"
        return _type_fault(self.type, value)


def misplaced_fields(prompt: str, declared: Mapping[str, AgentInput]) -> Iterator[str]:
    """Yield the fields of a prompt that a turn could not fill in, each with its fix."""
    names = ", ".join(f"{{inputs.{name}}}" for name in dict.fromkeys((*declared, INSTRUCTIONS)))
    for near in _ALMOST_PLACEHOLDER.findall(prompt):
        if not _FIELD.fullmatch(near):
            yield f"prompt: {near} is not known: write one of {names}"
    for match in _FIELD.finditer(prompt):
        scope, name = match.groups("")
        declaration = declared.get(name)
        if scope == "" and declaration is not None:
            yield f"prompt: write {{inputs.{name}}}, not {match[0]}"
        elif scope not in {"", "inputs"} or (scope and declaration is None and name != INSTRUCTIONS):
            yield f"prompt: {match[0]} is not known: declare the input, or write one of {names}"
        elif scope and declaration is not None and not declaration.required and declaration.default is None:
            yield f"prompt: {match[0]} may be left out: give inputs.{name} a default, or required = true"


def check_inputs(
    agent: str, declared: Mapping[str, AgentInput], given: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the inputs with the defaults of those that were left out.

    Raises:
        InputError: One is unknown, missing, or not as it is declared.
    """
    if not declared:
        return dict(given)
    values: dict[str, JsonValue] = {name: row.default for name, row in declared.items() if row.default is not None}
    values |= {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if name not in declared and name != INSTRUCTIONS:
            raise InputError(f"inputs.{name}: the agent {agent!r} takes no such input; it takes {', '.join(declared)}")
        if (fault := declared.get(name, AgentInput()).fault(value)) is not None:
            raise InputError(f"inputs.{name}: {fault}")
    for name, declaration in declared.items():
        is_text = declaration.type == "text" and not declaration.choices
        is_empty = name not in values or (is_text and not str(values[name]).strip())
        if declaration.required and is_empty:
            about = f": {declaration.description}" if declaration.description else ""
            raise InputError(f"inputs.{name}: the agent {agent!r} needs it{about}")
    return values


def instructions(agent: str, prompt: str | None, values: Mapping[str, JsonValue], *, listed: bool) -> str:
    """Return an agent's instructions: its prompt, or the caller's words if it has none.

    Words that the prompt has no field for follow it, and so do other such inputs, if they are to be `listed`.
    """
    words = values.get(INSTRUCTIONS)
    request = words if isinstance(words, str) and words.strip() else None
    placed = {INSTRUCTIONS} if isinstance(words, str) else set()
    parts = [request or f"{agent}: {_DEFAULT_INSTRUCTIONS}"]
    if prompt is not None:
        fields = [(match[0], *match.groups("")) for match in _FIELD.finditer(prompt)]
        names = {name for _, scope, name in fields if scope}
        texts = {field: _as_text(values.get(name, "")) for field, scope, name in fields if scope}
        filled = _FIELD.sub(lambda match: texts.get(match[0], match[0]), prompt).strip()
        parts = [filled, request] if request and INSTRUCTIONS not in names else [filled]
        placed |= names
    left = {name: value for name, value in values.items() if name not in placed}
    if left and listed:
        rows = (f"- {name}: {_as_text(value)}".replace("\n", "\n  ") for name, value in left.items())
        parts.append("Inputs:\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _type_fault(kind: str, value: JsonValue) -> str | None:
    if kind == "any":
        return None
    words, types = _KINDS[kind]
    # In Python, true is an integer.
    if isinstance(value, types) and isinstance(value, bool) == (kind == "boolean"):
        return None
    return f"{words} is expected, not {_as_json(value)}"


def _as_json(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _as_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
