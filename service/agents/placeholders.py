"""Placeholders of a command: facts of a turn become arguments, but never options."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from service.errors import ServiceError

NAMES: Final = ("instructions", "instructions_file", "conversation_file", "run_id", "branch")
OF_INSTRUCTIONS: Final = frozenset({"instructions", "instructions_file"})
_ANY: Final = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
_SAFE: Final = re.compile(r"(--[A-Za-z0-9][\w.-]*=)?" + _ANY.pattern)
_LONGEST_BYTES: Final = 100_000
"""Linux accepts up to 128 KiB in one argument."""


class PlaceholderError(ServiceError):
    """A placeholder cannot be filled in; the text names the cure."""


def check(argv: Sequence[str]) -> None:
    """Refuse placeholders whose value would be the program, or only a part of an argument.

    Raises:
        PlaceholderError: There is such a placeholder.
    """
    for at, word in enumerate(argv):
        found = _ANY.search(word)
        if found and (at == 0 or not _SAFE.fullmatch(word)):
            raise PlaceholderError(
                f"argv: {word!r}: {found[0]} has to be an argument of its own, or follow --name= directly"
            )


def used(argv: Sequence[str]) -> frozenset[str]:
    """Return the names of the placeholders in a command."""
    return frozenset(found[2] for found in map(_SAFE.fullmatch, argv) if found)


def fill(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return a command with the values in place of the placeholders.

    Raises:
        PlaceholderError: A value is too long for an argument.
    """
    return [_filled(word, values) for word in argv]


def _filled(word: str, values: Mapping[str, str]) -> str:
    found = _SAFE.fullmatch(word)
    if found is None:
        return word
    value = values[found[2]].replace("\0", "")
    if len(value.encode("utf-8", "surrogateescape")) > _LONGEST_BYTES:
        raise PlaceholderError(f"the {found[2]} are too long for an argument; use {{{found[2]}_file}} in its argv")
    if found[1]:
        return f"{found[1]}{value}"
    # A program would read a leading dash as an option; a leading space prevents that and does not change the meaning.
    return f" {value}" if value.startswith("-") else value
