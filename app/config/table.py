"""A TOML table, read key by key with its type checked; an unknown key is a mistake, reported with its line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn, TypeVar, cast

from app.config.settings import ConfigError

KeyPath = tuple[str | int, ...]
"""As in `("profiles", "acme", "base_url")`; a number is a place in an array of tables, counted from 0."""

_MOST_LINES: Final = 5_000
"""Longer files would take seconds to search."""
Kind = TypeVar("Kind")
Value = TypeVar("Value")
Word = TypeVar("Word", bound=str)


def line_of(text: str, path: KeyPath) -> int | None:
    """The line, counted from 1, where a key's statement (or the nearest table around it) begins; None: not found."""
    while path:
        if (line := _first_line_with(text, path)) is not None:
            return line
        path = path[:-1]
    return None


def _first_line_with(text: str, path: KeyPath) -> int | None:
    import tomllib  # only after a mistake

    # The key is in the last statement of the shortest parsable beginning that holds it.
    lines = text.splitlines(keepends=True)
    statement = 1
    for end in range(1, min(len(lines), _MOST_LINES) + 1):
        try:
            beginning = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # inside a value of several lines
        if _holds(beginning, path):
            return statement
        statement = end + 1
    return None


def _holds(value: object, path: KeyPath) -> bool:
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return False
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return False
    return True


def dotted(path: KeyPath) -> str:
    """A path in dotted form: `profiles.acme.base_url`, `templates[2].name` (counted from 1)."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step + 1}]"
        else:
            written += f".{step}" if written else step
    return written


@dataclass(frozen=True, slots=True)
class Source:
    """The file that tables come from."""

    file: Path
    text: str


@dataclass(slots=True)
class ConfigTable:
    """One table and its path in the file."""

    source: Source
    values: dict[str, object]
    path: KeyPath = ()
    known: set[str] = field(default_factory=set)
    """The keys asked for so far."""

    def text(self, key: str, default: str) -> str:
        """A string."""
        return self._read(key, default, str, "a string in quotes")

    def optional_text(self, key: str) -> str | None:
        """A non-empty string; None: the key is absent."""
        text = self._read(key, None, str, "a string in quotes")
        if text is not None and not text.strip():
            self.fail(key, "this is empty.", "Give it a value, or remove the key.")
        return text

    def required_text(self, key: str) -> str:
        """A required, non-empty string."""
        text = self.optional_text(key)
        if text is None:
            self.fail(key, "this key is missing.", f'Add a line: {key} = "…"')
        return text

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        return self._read(key, default, bool, "true or false")

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        """A whole or decimal number, both limits included."""
        value = self._read(key, default, (int, float), "a number")
        if not least <= value <= most:
            self.fail(key, f"{value} is out of range.", f"Use {least:g} to {most:g}.")
        return float(value)

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        """A whole number, both limits included."""
        value = self._read(key, default, int, "a whole number")
        if not least <= value <= most:
            self.fail(key, f"{value} is out of range.", f"Use {least} to {most}.")
        return value

    def texts(self, key: str, default: tuple[str, ...], *, may_be_empty: bool = False) -> tuple[str, ...]:
        """A list of strings, not empty unless allowed."""
        nothing: list[object] = []
        values = self._read(key, nothing, list, 'a list of strings, as in ["a", "b"]')
        texts = tuple(value for value in values if isinstance(value, str) and value)
        if key in self.values and (not (texts or may_be_empty) or len(texts) != len(values)):
            self.fail(key, "this is not a list of strings.", 'Write it as in ["a", "b"].')
        return texts if key in self.values else default

    def one_or_more(self, key: str) -> tuple[str, ...]:
        """A string, or a list of strings; empty if the key is absent."""
        if isinstance(self.values.get(key), list):
            return self.texts(key, ())
        one = self.optional_text(key)
        return () if one is None else (one,)

    def word(self, key: str, words: tuple[Word, ...], default: Word) -> Word:
        """One of these words."""
        text = self.text(key, default)
        found = next((word for word in words if word == text), None)
        if found is None:
            self.fail(key, f"{text!r} is not known here.", f"Use one of: {', '.join(words)}.")
        return found

    def parsed(self, key: str, read: Callable[[str], Value], default: Value) -> Value:
        """A string, parsed by a function; its `ValueError` says what is wrong."""
        text = self.optional_text(key)
        if text is None:
            return default
        try:
            return read(text)
        except ValueError as error:
            self.fail(key, f"{str(error).rstrip('.')}.", "Correct it, or remove the key.")

    def table(self, key: str) -> "ConfigTable":
        """A nested table; empty if the key is absent."""
        nothing: dict[str, object] = {}
        values = self._read(key, nothing, dict, f"a table: [{dotted((*self.path, key))}]")
        return ConfigTable(self.source, values, (*self.path, key))

    def tables(self, key: str) -> Iterator["ConfigTable"]:
        """An array of tables within."""
        wanted = f"an array of tables: [[{dotted((*self.path, key))}]]"
        nothing: list[object] = []
        for index, values in enumerate(self._read(key, nothing, list, wanted)):
            if not isinstance(values, dict):
                self.fail(key, f"this must be {wanted}.", "See `runwarden config init` for an example.")
            yield ConfigTable(self.source, values, (*self.path, key, index))

    def finish(self) -> None:
        """Refuse the keys that were not asked for.

        Raises:
            ConfigError: The table holds an unknown key.
        """
        for key in self.values:
            if key not in self.known:
                from difflib import get_close_matches

                suggestions = get_close_matches(key, self.known, n=1)
                known = ", ".join(sorted(self.known))
                self.fail(
                    key,
                    "there is no such key.",
                    f"Did you mean {suggestions[0]}?" if suggestions else f"There are: {known}.",
                )

    def fail(self, key: str, message: str, cure: str) -> NoReturn:
        """Report what is wrong with a key.

        Raises:
            ConfigError: Always, with file and line.
        """
        path = (*self.path, key)
        line = line_of(self.source.text, path)
        raise ConfigError(message, cure=cure, file=self.source.file, key=dotted(path), line=line)

    def _read(self, key: str, default: Kind, kind: type | tuple[type, ...], wanted: str) -> Kind:
        self.known.add(key)
        if key not in self.values:
            return default
        value = self.values[key]
        # In Python true is a number; in a configuration it is a mistake.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.fail(key, f"this must be {wanted}.", f"It is {_kind_of(value)}.")
        return cast("Kind", value)


def _kind_of(value: object) -> str:
    names = {
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), "a date or time")
