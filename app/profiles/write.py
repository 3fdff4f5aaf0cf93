"""Writes the configuration: all or nothing, readable only for its owner, and always valid.

A file that cannot be written, or would not be valid, raises `ConfigError`, and is not touched. The JSON Schema is made
of the settings: editors complete and check the file with it.
"""

import ast
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache, partial
from inspect import getdoc, getsource
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from app.engine.atomic_file import alone, replacing
from app.profiles.load import example_text, parse, read_text, unusable
from app.profiles.settings import ENVIRONMENT_PROFILE, ConfigError, NotifyRoute, NotifySettings, Profile, Settings
from app.profiles.table import is_struct, unwrapped
from app.profiles.token import TOKEN_KINDS, Token
from app.profiles.values import MAY_BE_EMPTY, ONE_OR_MORE, Between, OneOrMore, QuietHours

MAX_NAME: Final = 40
SCHEMA_FILE: Final = "config.schema.json"
"""The name of the schema next to a configuration whose first line names it."""
_TYPES: Final[Mapping[object, str]] = {bool: "boolean", int: "integer", float: "number"}
_TEXT: Final = {"type": "string"}
_PATTERNS: Final[Mapping[object, str]] = {
    timedelta: r"^\s*([0-9]+(\.[0-9]+)?[smhdwSMHDW])+\s*$",
    QuietHours: r"^\s*([0-9]{1,2}:[0-9]{2}\s*-\s*[0-9]{1,2}:[0-9]{2}\s*)?$",
}


class ChangedError(ConfigError):
    """Another program has changed the file since it was read."""


def name_problem(name: str) -> str | None:
    """Why a text cannot be a profile's name; None if it can."""
    if not name.strip():
        return "It needs a name, such as acme."
    if name == ENVIRONMENT_PROFILE:
        return "This name belongs to RUNWARDEN_BASE_URL: choose another."
    if len(name) > MAX_NAME or not name.isprintable() or name != name.strip():
        return f"A name is one line of at most {MAX_NAME} characters, without blanks around it."
    return None


def save(file: Path, before: str | None, after: str) -> Settings:
    """Replace the text of a configuration, and return the settings that it then holds."""
    settings = parse(file, after)
    # Keep a symbolic link, as a configuration in git often is one.
    target = file.resolve()
    with _write_errors(target), alone(target.parent):
        if read_text(target) != before:
            raise ChangedError("this changed since it was read.", fix="Read it again, and change it then.", file=file)
        with replacing(target) as written:
            written.write(after)
    write_schema(file, after)
    return settings


def add_profile(file: Path, new: Profile) -> None:
    """Append a profile to the configuration, or to the commented example if there is none yet."""
    from tomlkit import dumps  # only where something is written

    before = read_text(file)
    named = [token_key for token_key, kind in TOKEN_KINDS.items() if isinstance(new.token, kind)]
    if not named:
        raise ValueError("A token itself has no place in this file.")
    source = getattr(new.token, new.token.__struct_fields__[0])
    profile: dict[str, object] = {"base_url": new.base_url}
    profile[named[0]] = list(source) if isinstance(source, tuple) else str(source)
    if new.read_only:
        profile["read_only"] = True
    added = dumps({"profiles": {new.name: profile}})
    save(file, before, f"{(example_text() if before is None else before).rstrip()}\n\n{added}".lstrip())


def keep_token(folder: Path, name: str, token: Token) -> Path:
    """Write a token to a new file named after the profile, readable only for its owner."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "profile"
    with _write_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = (folder / f"{slug}{'' if number == 1 else f'-{number}'}.token" for number in count(1))
        private = partial(os.open, mode=0o600)
        while True:
            # "x": another console may take the name at the same time.
            with suppress(FileExistsError), open(path := next(paths), "x", encoding="ascii", opener=private) as file:
                file.write(f"{token.reveal()}\n")
                return path


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unusable(path, "written", error) from error


def write_schema(file: Path, text: str) -> None:
    """Write the schema next to a configuration whose text names it; without one, editors only lack their help."""
    if text.startswith(f"#:schema ./{SCHEMA_FILE}\n"):
        with suppress(OSError), replacing(file.with_name(SCHEMA_FILE)) as written:
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
    properties = {key: value for kind in reversed(objects) for key, value in kind["properties"].items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _object(kind: type[Any], **overrides: dict[str, Any]) -> dict[str, Any]:
    """A table that is read as this struct; `overrides` has the keys that are read in another way."""
    fields = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    for name in getattr(kind, "NO_KEYS", ()):
        fields.pop(name)
    descriptions = {}
    for field, text in pairwise(_classes(kind.__module__)[kind.__name__].body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                descriptions[name] = {"description": " ".join(words.split())}
    optional = kind.__struct_fields__[len(kind.__struct_fields__) - len(kind.__struct_defaults__) :]
    return {
        "type": "object",
        "description": getdoc(kind),
        "additionalProperties": False,
        "properties": overrides
        | {
            key: (overrides.get(key) or _of(kind.__annotations__[name])) | descriptions.get(name, {})
            for name, key in fields.items()
        },
        "required": [key for name, key in fields.items() if name not in optional],
    }


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module as written: the texts below their fields are nowhere else."""
    tree = ast.parse(getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _of(kind: object) -> dict[str, Any]:
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
