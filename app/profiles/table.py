"""TOML tables read as structs: their fields are the keys; a mistake names its file, line, key and fix."""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NoReturn, TypeGuard, TypeVar, Union, cast, get_args, get_origin

from msgspec import Struct

from app.engine.text import did_you_mean
from app.engine.times import parse_duration
from app.profiles.settings import ConfigError
from app.profiles.values import MAY_BE_EMPTY, ONE_OR_MORE, Between, MistakeError, QuietHours
from storage import UnreadableTextError

KeyPath = tuple[str | int, ...]
"""A path such as `("profiles", "acme", "base_url")`; a number is a place in an array of tables, counted from 0."""

LEFT_OUT: Final = None
"""A marker in an array of tables for a table that was found wrong before, see `app.profiles.load.mistakes`."""
_MAX_LINES: Final = 5_000
"""The longest file that is searched: a longer one would take seconds."""
_NAMES: Final[Mapping[type, str]] = {
    str: "a string in quotes", bool: "true or false", int: "a whole number", float: "a number",
    list: 'a list of strings, as in ["a", "b"]',
}  # fmt: skip
_FOUND: Final[Mapping[type, str]] = {
    str: "a string", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"
}  # fmt: skip
_PARSERS: Final[Mapping[type, Callable[[str], object]]] = {timedelta: parse_duration, QuietHours: QuietHours.parse}
_REQUIRED: Final = object()
S = TypeVar("S", bound=Struct)
T = TypeVar("T")


class Table(Struct, frozen=True):
    """One table of a file, and its path in it. A key that is missing, unknown or wrong raises `ConfigError`."""

    file: Path
    text: str
    values: Mapping[str, object]
    path: KeyPath = ()

    def into(self, kind: type[S], base: S | None = None, also: Collection[str] = (), **values: object) -> S:
        """The table as a struct; `base` has the defaults, `values` the values read before, `also` further keys."""
        names: tuple[str, ...] = kind.__struct_fields__
        keys = dict(zip(names, kind.__struct_encode_fields__, strict=True))
        defaults = dict(zip(reversed(names), reversed(kind.__struct_defaults__), strict=False))
        no_keys = getattr(kind, "NO_KEYS", ())
        known_keys = {*(key for name, key in keys.items() if name not in no_keys), *also}
        for key in self.values:
            if key not in known_keys:
                self.fail(key, "there is no such key.", did_you_mean(key, known_keys))
        for name, key in keys.items():
            if name not in no_keys and name not in values:
                default = defaults.get(name, _REQUIRED) if base is None else getattr(base, name)
                values[name] = self.get(key, kind.__annotations__[name], default)
        try:
            return kind(**values)
        except MistakeError as mistake:
            self.fail(mistake.key, mistake.problem, mistake.fix)

    def get(self, key: str, kind: object, default: object = _REQUIRED) -> Any:
        """One value, of a type as fields have them."""
        kind, marks = unwrap(kind)
        if key not in self.values:
            if default is _REQUIRED:
                example = '["…"]' if get_origin(kind) is tuple else '"…"'
                self.fail(key, "this key is missing.", f"Add a line: {key} = {example}")
            return default
        parse = next(filter(callable, marks), None) or _PARSERS.get(cast("type", kind))
        if parse is None and is_struct(kind):
            return self.table(key).into(cast("type", kind))
        if get_origin(kind) is tuple:
            return self._several(key, get_args(kind)[0], marks)
        bounds = next((mark for mark in marks if isinstance(mark, Between)), None)
        if kind in {bool, int, float}:
            return self._number(key, cast("type", kind), bounds)
        text = self._value_of(key, str)
        if not text.strip() and default != "" and kind is not QuietHours:
            self.fail(key, "this is empty.", "Give it a value, or remove the key.")
        if get_origin(kind) is Literal:
            return self._word(key, text, get_args(kind))
        if kind is Path:
            return self.file.parent / Path(text).expanduser()
        try:
            value = parse(text) if parse else text
        except UnreadableTextError as error:
            self.fail(key, error.problem, error.fix)
        if bounds and not bounds.least <= value <= bounds.most:
            least = f"{bounds.least.total_seconds():g}s"
            most = f"{bounds.most.days}d"
            self.fail(key, f"{text} is out of range.", f"Use {least} to {most}.")
        return value

    def table(self, key: str) -> "Table":
        """A table within; empty if the key is absent."""
        expected = f"a table: [{dotted_key((*self.path, key))}]"
        values = self._value_of(key, dict, expected) if key in self.values else {}
        return Table(self.file, self.text, values, (*self.path, key))

    def tables(self, key: str) -> "Iterator[Table]":
        """An array of tables within."""
        expected = f"an array of tables: [[{dotted_key((*self.path, key))}]]"
        for index, values in enumerate(self._value_of(key, list, expected) if key in self.values else ()):
            if values is LEFT_OUT:
                continue
            if not isinstance(values, dict):
                self.fail(key, f"this must be {expected}.", "See `runwarden config init` for an example.")
            yield Table(self.file, self.text, values, (*self.path, key, index))

    def named_tables(self, key: str, read: "Callable[[Table], T]") -> tuple[T, ...]:
        """An array of tables within, no two of which have the same name."""
        by_name: dict[str, T] = {}
        for table in self.tables(key):
            value = read(table)
            name = str(table.values["name"]).casefold()
            if name in by_name:
                table.fail("name", f"another {key.removesuffix('s')} has this name.", "Rename one of them.")
            by_name[name] = value
        return tuple(by_name.values())

    def fail(self, key: str, message: str, fix: str = "") -> NoReturn:
        raise self.mistake(key, message, fix)

    def mistake(self, key: str, message: str, fix: str) -> ConfigError:
        """The mistake in a key, with file and line."""
        path = (*self.path, key)
        error = ConfigError(message, fix=fix, file=self.file, key=dotted_key(path), line=line_of(self.text, path))
        error.path = path
        return error

    def _several(self, key: str, item: object, marks: Collection[object]) -> tuple[Any, ...]:
        """The tables or texts of a key that takes several."""
        if is_struct(item):
            return tuple(table.into(cast("type", item)) for table in self.tables(key))
        if ONE_OR_MORE in marks and not isinstance(self.values[key], list):
            return (self.get(key, item),)
        texts = self._value_of(key, list)
        if not all(isinstance(text, str) and text for text in texts) or not (texts or MAY_BE_EMPTY in marks):
            self.fail(key, "this is not a list of strings.", 'Write it as in ["a", "b"].')
        return tuple(self._word(key, text, get_args(item)) for text in texts)

    def _number(self, key: str, kind: type[float], bounds: "Between | None") -> float:
        """A number; a whole one may stand for a float."""
        is_whole = kind is float and type(self.values[key]) is int
        number: Any = self.values[key] if is_whole else self._value_of(key, kind)
        if bounds and not bounds.least <= number <= bounds.most:
            self.fail(key, f"{number} is out of range.", f"Use {bounds.least} to {bounds.most}.")
        return float(number) if is_whole else number

    def _value_of(self, key: str, kind: type[T], expected: str = "") -> T:
        value = self.values[key]
        # In Python true is a number; in a configuration it is a mistake.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            actual = _FOUND.get(type(value), "a date or time")
            self.fail(key, f"this must be {expected or _NAMES[kind]}.", f"It is {actual}.")
        return value

    def _word(self, key: str, text: str, words: tuple[str, ...]) -> str:
        if words and text not in words:
            self.fail(key, f"{text!r} is not known here.", f"Use one of: {', '.join(words)}.")
        return text


def unwrap(kind: object) -> tuple[object, list[Any]]:
    """The type of a field without `None`, and its annotations."""
    marks: list[Any] = []
    while get_origin(kind) in {Annotated, Union, UnionType}:
        if get_origin(kind) is Annotated:
            kind, *marks = get_args(kind)
        else:
            kind = next(part for part in get_args(kind) if part is not NoneType)
    return kind, marks


def is_struct(kind: object) -> TypeGuard[type[Struct]]:
    """Whether a value of this type is a table."""
    return isinstance(kind, type) and issubclass(kind, Struct)


def check_route(table: Table, key: str, name: str, names: Collection[str]) -> None:
    """Refuse a route that is not one of these."""
    if name not in names:
        table.fail(key, f"there is no route {name!r}.", f"There are: {', '.join(names)}.")


def dotted_key(path: KeyPath) -> str:
    """A path in dotted form: `profiles.acme.base_url`, `templates[2].name` (counted from 1)."""
    return "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def line_of(text: str, path: KeyPath) -> int | None:
    """The first line, counted from 1, of a key's statement or the nearest table around it, or None if there is none."""
    import tomllib  # only after a mistake

    # The key is in the last statement of the shortest parsable beginning that holds it.
    lines = text.splitlines(keepends=True)[:_MAX_LINES]
    statement = 1
    lines_at = dict[int, int]()
    for end in range(1, len(lines) + 1):
        try:
            value: Any = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # inside a value of several lines
        for depth, step in enumerate(path, 1):
            try:
                value = value[step]
            except (LookupError, TypeError):
                break
            lines_at.setdefault(depth, statement)
        if len(path) in lines_at:
            break
        statement = end + 1
    return max(lines_at.items(), default=(0, None))[1]
