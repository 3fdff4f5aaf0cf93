"""The JSON Schema of the configuration, made of the settings: editors complete and check the file with it."""

import ast
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from inspect import getdoc, getsource
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from app.engine.atomic_file import replacing
from app.profiles.settings import NotifyRoute, NotifySettings, Profile, Settings
from app.profiles.table import is_struct, unwrapped
from app.profiles.token import TOKEN_KINDS
from app.profiles.values import MAY_BE_EMPTY, ONE_OR_MORE, Between, OneOrMore, QuietHours

FILE: Final = "config.schema.json"
"""The name of the schema next to a configuration whose first line names it."""
_TYPES: Final[Mapping[object, str]] = {bool: "boolean", int: "integer", float: "number"}
_TEXT: Final = {"type": "string"}
_PATTERNS: Final[Mapping[object, str]] = {
    timedelta: r"^\s*([0-9]+(\.[0-9]+)?[smhdwSMHDW])+\s*$",
    QuietHours: r"^\s*([0-9]{1,2}:[0-9]{2}\s*-\s*[0-9]{1,2}:[0-9]{2}\s*)?$",
}


def write_schema(file: Path, text: str) -> None:
    """Write the schema next to a configuration whose text names it; without one, editors only lack their help."""
    if text.startswith(f"#:schema ./{FILE}\n"):
        with suppress(OSError), replacing(file.with_name(FILE)) as written:
            written.write(json.dumps(schema(), indent=1))


def schema() -> dict[str, Any]:
    """The schema, as of draft 7, which editors of TOML know."""
    from app.automations.read_rules import RESPONSES, TRIGGERS
    from app.automations.rule import Rule

    globs = {"repository": _of(OneOrMore), "branch": _of(OneOrMore), "metadata": _by_name(_of(OneOrMore))}
    on = [_object(kind, **globs if kind.__name__ == "OnRun" else {}) for kind in TRIGGERS.values()]
    do = [_object(kind) for kind in RESPONSES.values()]
    do.append({"properties": {"inputs": _by_name(_TEXT), "retry": {"const": True}, "cancel": {"const": True}}})
    tokens = {key: _of(kind.__annotations__[kind.__struct_fields__[0]]) for key, kind in TOKEN_KINDS.items()}
    keys = {"type": "object", "additionalProperties": {"anyOf": [_TEXT, _by_name(_TEXT)]}}
    whole = _object(
        Settings,
        notify=_object(NotifySettings, routes=_by_name(_object(NotifyRoute))),
        keys=keys,
        repositories=_by_name(_TEXT),
        automations={"type": "array", "items": _object(Rule, on=_any_of(on), do=_any_of(do))},
        profiles=_by_name(_object(Profile, **tokens)),
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Runwarden's configuration", **whole}


def _by_name(values: object) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _any_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """An object with the keys of any of these: an editor then names the key that none of them has."""
    properties = {key: value for one in reversed(objects) for key, value in one["properties"].items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _object(kind: type[Any], **given: dict[str, Any]) -> dict[str, Any]:
    """A table that is read as this struct; `given` has the keys that are read in another way."""
    fields = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    for name in getattr(kind, "NO_KEYS", ()):
        fields.pop(name)
    said = {}
    for field, text in pairwise(_classes(kind.__module__)[kind.__name__].body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                said[name] = {"description": " ".join(words.split())}
    old = getattr(kind, "OLD_KEYS", {})
    optional = kind.__struct_fields__[len(kind.__struct_fields__) - len(kind.__struct_defaults__) :]
    return {
        "type": "object",
        "description": getdoc(kind),
        "additionalProperties": False,
        "properties": given
        | {
            key: (given.get(key) or _of(kind.__annotations__[name])) | said.get(name, {})
            for name, key in fields.items()
        }
        | {name: _of(kind.__annotations__[name]) | {"deprecated": True} for name in old},
        "required": [key for name, key in fields.items() if name not in optional and key not in old.values()],
    }


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module as written: the texts below their fields are nowhere else."""
    tree = ast.parse(getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _of(kind: object) -> dict[str, Any]:
    """A value, of a type as fields have them; `app.profiles.table.Table.get` reads it."""
    kind, marks = unwrapped(kind)
    if any(map(callable, marks)) or kind is Path:
        return _TEXT
    if kind in _PATTERNS:
        return _TEXT | {"pattern": _PATTERNS[kind]}
    if is_struct(kind):
        return _object(kind)
    if get_origin(kind) is Literal:
        return {"enum": [*get_args(kind)]}
    if get_origin(kind) is tuple:
        item = _of(get_args(kind)[0])
        least = {} if MAY_BE_EMPTY in marks or item.get("type") == "object" else {"minItems": 1}
        many = {"type": "array", "items": item, **least}
        return {"anyOf": [item, many]} if ONE_OR_MORE in marks else many
    bounds = [mark for mark in marks if isinstance(mark, Between)]
    limits = {"minimum": bounds[0].least, "maximum": bounds[0].most} if bounds else {}
    return {"type": _TYPES.get(kind, "string"), **limits}
