"""Makes foreign text printable: the result cannot move a cursor or hide. All foreign text passes through here."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from unicodedata import category

_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMBINING: Final = frozenset({"Mn", "Me", "Mc"})
_MAX_COMBINING: Final = 4
"""Marks on one character; more would paint over the lines above."""
_PLACEHOLDER: Final = "\N{REPLACEMENT CHARACTER}"
_ELLIPSIS: Final = "\N{HORIZONTAL ELLIPSIS}"
_DELETE: Final = 0x7F
_PICTURES: Final = 0x2400
"""Where Unicode's pictures of the C0 control characters begin."""
_PICTURE_OF_DELETE: Final = "\N{SYMBOL FOR DELETE}"
_JOINERS: Final = {"\N{ZERO WIDTH NON-JOINER}": "LM", "\N{ZERO WIDTH JOINER}": "LMS"}
"""Invisible characters that are part of words and emoji, each with the categories (letters, marks, symbols) between
which it stays."""
_TAB_WIDTH: Final = 4
_SGR: Final = re.compile("\x1b\\[([0-9;:]{0,64})m")
_HIDING: Final = frozenset({"5", "6", "8", "05", "06", "08"})
"""Codes that make text blink or vanish."""
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a formula in a spreadsheet."""
_OBEYED: Final = {"-": "\N{HYPHEN}", "@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{FULLWIDTH LESS-THAN SIGN}"}
"""Look-alikes of first characters that programs obey (`--option`, curl's `@file` and `<file`)."""
_MAX_CELL: Final = 10_000


class SafeText(str):
    """Text that a terminal prints unchanged; only `safe_text` and `safe_block` create it."""

    __slots__ = ()


def safe_text(text: str, *, limit: int = 500) -> SafeText:
    """Return foreign text as one printable line of at most `limit` (at least 1) characters, `…` last if it was cut.

    Control, format, surrogate, private, unassigned and line-separating characters become visible placeholders, except
    joiners between letters or emoji; more than four combining marks in a row are dropped. Applying it twice changes
    nothing.
    """
    # Cut first, which bounds the cost of everything below.
    cut = shorten(text, limit)
    if cut.isprintable() and cut.isascii():
        return SafeText(cut)
    return SafeText("".join(_printable(cut)))


def shorten(text: str, limit: int) -> str:
    """Return the text, cut to `limit` with a final `…` if it is longer; the result is not safe text yet."""
    return text if len(text) <= limit else text[: limit - 1] + _ELLIPSIS


def safe_block(text: str, *, limit: int = 20_000, lines: int = 1_000) -> tuple[SafeText, ...]:
    """Return foreign text as printable lines: at most `limit` characters and `lines` lines, `…` for missing ones.

    Line ends (LF, CRLF, CR) divide lines; tabs become spaces up to the next fourth column.
    """
    cut = shorten(text, limit)
    parts = cut.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if len(parts) > lines:
        parts = [*parts[: lines - 1], _ELLIPSIS]
    return tuple(safe_text(part.expandtabs(_TAB_WIDTH), limit=limit * _TAB_WIDTH) for part in parts)


def json_or_text(text: str) -> Any:
    """Read a value: as JSON if it is valid JSON and no number is too large for it, otherwise as the text itself."""
    import json  # help needs none

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON.")

    try:
        value = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return text
    # 1e999 is a valid JSON number that no float can hold.
    if isinstance(value, float) and not math.isfinite(value):
        return text
    return value


def first_line(text: str) -> str:
    """Return the first line that is not blank; "" if there is none. It is not safe text yet."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def safe_log_line(text: str, *, limit: int = 4_000, colour: bool = False) -> SafeText:
    """Return a log's line in its last state, without overwritten text; of escape sequences only colours stay."""
    last = next((part for part in reversed(text.split("\r")) if part), "")
    # The cut end is made visible as well: half a sequence colours nothing.
    parts = _SGR.split(last[:limit].expandtabs(_TAB_WIDTH))
    safe = [
        f"\x1b[{part}m"
        if number % 2 and colour and not _HIDING & set(re.split("[;:]", part))
        else safe_text(part, limit=4 * limit)
        for number, part in enumerate(parts)
        if not number % 2 or colour
    ]
    end = "\x1b[0m" if len(parts) > 1 and colour else ""
    return SafeText("".join(safe) + (_ELLIPSIS if len(last) > limit else "") + end)


def json_escaped(document: str) -> str:
    """Return equivalent JSON with characters that a terminal acts on or hides as JSON escapes."""
    if document.replace("\n", "").isprintable():
        return document
    escapes = dict[int, str]()
    for character in document:
        if not character.isprintable() and character != "\n":
            # As UTF-16: beyond the first 65,536 characters JSON needs a surrogate pair.
            units = character.encode("utf-16-be", "surrogatepass").hex()
            escapes[ord(character)] = re.sub("(.{4})", r"\\u\1", units)
    return document.translate(escapes)


def _printable(text: str) -> Iterator[str]:
    marks = 0
    for at, character in enumerate(text):
        kind = category(character)
        marks = marks + 1 if kind in _COMBINING else 0
        if character in _JOINERS and all(
            neighbour and not neighbour.isascii() and category(neighbour)[0] in _JOINERS[character]
            for neighbour in (text[at - 1 : at], text[at + 1 : at + 2])
        ):
            yield character
        elif kind in _UNPRINTABLE:
            code = ord(character)
            other = _PICTURE_OF_DELETE if code == _DELETE else _PLACEHOLDER
            yield chr(_PICTURES + code) if code < ord(" ") else other
        elif marks <= _MAX_COMBINING:
            yield character


def csv_cell(value: object) -> str:
    """Return a CSV cell that neither a terminal nor a spreadsheet acts on."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = str(safe_text(str(value), limit=_MAX_CELL))
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders filled in one pass; unknown ones, and braces inside a value, stay."""
    return re.sub(r"\{([\w.]+)\}", lambda match: values.get(match[1], match[0]), text)


def as_argument(text: str) -> str:
    """Return text as a program's argument that cannot be mistaken for an option or a file name."""
    return f"{_OBEYED.get(text[:1], text[:1])}{text[1:]}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the known word behind a typo or, without a match, lists all words."""
    names = sorted(known)
    near = closest(word, names)
    if near:
        return f"Did you mean {near}?"
    return f"There are: {', '.join(names)}."


def closest(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # for mistakes only

    return next(iter(get_close_matches(word, list(known), n=1)), None)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
