"""`KEY=VALUE` options as a JSON object, for metadata and for an agent's inputs."""

import json
from typing import TYPE_CHECKING

from app.cli.exits import failed

if TYPE_CHECKING:
    from app.api.requests import Json


def mapping(pairs: tuple[str, ...]) -> "dict[str, Json]":
    """The options as an object; a value that is JSON is taken as JSON: `3` is a number, `"3"` and `three` are texts.

    Raises:
        CommandFailed: One is no pair, or a key is given twice.
    """
    found: dict[str, Json] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise failed("usage", f"{text!r} is no KEY=VALUE.")
        if key in found:
            raise failed("usage", f"{key!r} is given twice.")
        found[key] = json_or_text(value)
    return found


def json_or_text(text: str) -> "Json":
    """A value as JSON where it is JSON, else the text itself."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON.")
