"""Which line of a TOML text holds a key; asked only after a mistake, since tomllib keeps no positions."""

from typing import Final

KeyPath = tuple[str | int, ...]
"""As in `("profiles", "acme", "base_url")`; a number is a place in an array of tables, counted from 0."""

_MOST_LINES: Final = 5_000
"""Beyond that no line is worth the seconds it takes to find."""


def line_of(text: str, path: KeyPath) -> int | None:
    """The line, counted from 1, where a key's statement (or the nearest table around it) begins; None: not found."""
    while path:
        if (line := _first_line_with(text, path)) is not None:
            return line
        path = path[:-1]
    return None


def _first_line_with(text: str, path: KeyPath) -> int | None:
    import tomllib  # only after a mistake

    # The parser itself says where a key appears: in the shortest beginning of the text that holds it.
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
    """A path as people write it: `profiles.acme.base_url`, `templates[2].name` (counted from 1)."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step + 1}]"
        else:
            written += f".{step}" if written else step
    return written
