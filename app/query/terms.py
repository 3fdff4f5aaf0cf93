"""A line cut into terms: conditions and words, each piece with its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.query.keys import meaning, near

QUOTE: Final = '"'
ESCAPE: Final = "\\"
_NAME: Final = re.compile(r"([A-Za-z_]+):")


@dataclass(frozen=True, slots=True)
class Piece:
    """A value or a word."""

    text: str
    """Without quotes and escapes."""
    start: int
    end: int
    quoted: bool = False
    """Everything in it is meant literally."""
    closed: bool = True
    """False: the line ended before its quote did."""


@dataclass(frozen=True, slots=True)
class Term:
    """One condition, or one word."""

    start: int
    end: int
    negated: bool
    key: str | None
    """As written; None: a word."""
    key_end: int
    """Index behind the colon; of a word, where it begins."""
    pieces: tuple[Piece, ...]
    """The condition's values, empty ones included; one for a word."""


def terms(line: str) -> Iterator[Term]:
    """The terms of a line, from left to right; together they cover all of it but the blanks between them."""
    at = 0
    while (at := _blanks_end(line, at)) < len(line):
        term = _term(line, at)
        yield term
        at = term.end


def _term(line: str, start: int) -> Term:
    at = start
    negated = line[at] == "-" and at + 1 < len(line) and not line[at + 1].isspace()
    if negated:
        at += 1
    name = _NAME.match(line, at)
    if name is None or not is_key_like(name[1]):
        word = _piece(line, at, ends_at_comma=False)
        return Term(start, word.end, negated, None, at, (word,))
    pieces = tuple(_list(line, name.end()))
    return Term(start, pieces[-1].end, negated, name[1], name.end(), pieces)


def is_key_like(name: str) -> bool:
    """Whether a name before a colon is a key or one misspelt; others belong to words, as in `gitlab:acme/api`."""
    return meaning(name) is not None or near(name) is not None


def _list(line: str, at: int) -> Iterator[Piece]:
    while True:
        piece = _piece(line, at, ends_at_comma=True)
        yield piece
        if piece.end >= len(line) or line[piece.end] != ",":
            return
        at = piece.end + 1


def _piece(line: str, start: int, *, ends_at_comma: bool) -> Piece:
    if line.startswith(QUOTE, start):
        return _quoted(line, start)
    end = start
    while end < len(line) and not line[end].isspace() and not (ends_at_comma and line[end] == ","):
        end += 1
    return Piece(line[start:end], start, end)


def _quoted(line: str, start: int) -> Piece:
    text: list[str] = []
    at = start + 1
    while at < len(line):
        character = line[at]
        if character == QUOTE:
            return Piece("".join(text), start, at + 1, quoted=True)
        if character == ESCAPE and line[at + 1 : at + 2] in {QUOTE, ESCAPE}:
            at += 1
            character = line[at]
        text.append(character)
        at += 1
    return Piece("".join(text), start, at, quoted=True, closed=False)


def _blanks_end(line: str, at: int) -> int:
    while at < len(line) and line[at].isspace():
        at += 1
    return at


def quoted(text: str) -> str:
    """A text as one piece that is meant literally."""
    return f"{QUOTE}{text.replace(ESCAPE, ESCAPE * 2).replace(QUOTE, ESCAPE + QUOTE)}{QUOTE}"
