"""A line of the query language as text; changes keep the rest of it as typed."""

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from app.query import QueryProblem, parse
from app.query.parse import given
from app.query.terms import KeyName, key_name, terms
from app.query.write import value_text
from app.text import SafeText, safe_text
from storage.records import KNOWN_STATUSES

_SENTENCES: Final = r"(?<=[.?]) "
_TIMED: Final[frozenset[KeyName]] = frozenset({"since", "until", "is"})


def replaced(line: str, keys: Collection[KeyName], new: Iterable[str]) -> str:
    """Replace all terms with one of these keys; without any, add at the end."""
    kept: list[str] = []
    first: int | None = None
    for term in terms(line):
        if term.key is not None and key_name(term.key) in keys:
            first = len(kept) if first is None else first
        else:
            kept.append(line[term.start : term.end])
    index = len(kept) if first is None else first
    return " ".join((*kept[:index], *new, *kept[index:]))


def listed(key: KeyName, asked: Iterable[str], excluded: Iterable[str] = ()) -> Iterator[str]:
    """The terms that ask for some values and exclude others."""
    for sign, values in (("", tuple(asked)), ("-", tuple(excluded))):
        if values:
            yield f"{sign}{key}:{','.join(value_text(value, key) for value in values)}"


def as_typed(line: str, cursor: int) -> str:
    """Interpret a line while it is typed: an unfinished value stands for all values that contain it.

    An unfinished status stands for those that begin with it; an unfinished time is left out.
    """
    found = next((term for term in terms(line) if term.start < cursor <= term.end), None)
    if found is None:
        return line
    without = line[: found.start] + line[found.end :]
    if found.key is None:
        # A quote that was just opened, or a minus, would be a mistake if nothing followed.
        return line if found.tokens[0].is_closed and not found.is_negated else without
    key = key_name(found.key)
    piece = next((piece for piece in found.tokens if piece.start <= cursor <= piece.end), None)
    if key is None or piece is None:
        return line
    if not piece.is_closed or not given(found):
        return without
    meant = piece.text if piece.is_quoted else _meant(key, piece.text)
    if meant is None:
        return without
    return line if piece.is_quoted or not piece.text else line[: piece.start] + meant + line[piece.end :]


def settled(line: str, cursor: int) -> str:
    """Complete a line after typing: write out what an unfinished value stood for; mistakes stay."""
    now = datetime.now(UTC)
    return line if parse(line, now).problems else " ".join(_pieces(as_typed(line, cursor)))


def limit_in(line: str, key: KeyName) -> str:
    """A time limit as written in the line, or an empty one."""
    return next((term.tokens[0].text for term in terms(line) if term.key and key_name(term.key) == key), "")


def _pieces(line: str) -> Iterator[str]:
    return (line[term.start : term.end] for term in terms(line))


def _meant(key: KeyName, text: str) -> str | None:
    """The meaning of an unfinished value; None: nothing yet."""
    if key == "status":
        begun = sorted(status for status in KNOWN_STATUSES if status.startswith(text.casefold()))
        return ",".join(begun) or text
    if key in _TIMED:
        return None if parse(f"{key}:{text}", datetime.now(UTC)).problems else text
    return text if "*" in text else f"*{text}*"


def problem_texts(problem: QueryProblem) -> Iterator[SafeText]:
    """The problem with the line and its cure, then shorter: the line underlines the mistake."""
    instead = re.split(_SENTENCES, problem.cure)[0]
    for text in (f"{problem.message} {problem.cure}", f"{problem.message} {instead}", instead):
        yield safe_text(f"✗ {text}", limit=200)
