"""The grammar: the keys of the query language, and a line split into terms with their positions."""

import re
from collections.abc import Collection, Iterator
from typing import Final, Literal

from msgspec import Struct

from app.engine.text import closest

KeyName = Literal["status", "repo", "branch", "agent", "finding", "since", "until", "is"]
QUOTE: Final = '"'
ESCAPE: Final = "\\"
_START: Final = re.compile(r"(?:-(?=\S))?(?=\S)")
"""Where a term begins, and its minus."""
_NAME: Final = re.compile(r"([A-Za-z_]+):")
_WORD: Final = re.compile(r"\S*")
_VALUE: Final = re.compile(r"[^\s,]*")
_QUOTED: Final = re.compile(r'"((?:\\["\\]|[^"])*)("?)')
_ESCAPED: Final = re.compile(r'\\(["\\])')


class QueryKey(Struct, frozen=True):
    """A key of the query language."""

    name: KeyName
    aliases: tuple[str, ...]
    example: str
    about: str


KEYS: Final = (
    QueryKey("status", (), "status:failed,queued", "The run's status; several: any of them."),
    QueryKey("repo", ("repository",), "repo:acme/*", "The repository; * matches anything."),
    QueryKey("branch", (), "branch:agent/*", "The branch; * matches anything."),
    QueryKey("agent", (), "agent:claude", "The agent; * matches anything."),
    QueryKey("finding", ("findings",), "finding:blocker,major", "blocker, major, minor, note, any, none or unknown."),
    QueryKey("since", ("from",), "since:7d", "Created then or later: 2h, 7d, 2026-05-01."),
    QueryKey("until", ("to",), "until:2026-05-01", "Created then or earlier; a date includes its day."),
    QueryKey("is", (), "is:active", "active, ended, stuck or followed."),
)
_BY_NAME: Final = {name: key.name for key in KEYS for name in (key.name, *key.aliases)}
COLUMNS: Final = frozenset({"asked", "author", "result", "run", "started", "took", "updated"})
"""Names that look like keys because the list shows them: a mistake, not words to be searched."""
UNKNOWN: Final = "unknown"
"""Stands for a value that is not known."""
STATES: Final = ("active", "ended", "stuck", "followed")
"""The values of `is:`."""


def key_name(name: str) -> KeyName | None:
    """The key of a name or alias, case-insensitive; None: unknown."""
    return _BY_NAME.get(name.casefold())


def closest_key(name: str) -> str | None:
    """The key that an unknown one was probably meant to be."""
    return None if name.casefold() in COLUMNS else closest(name.casefold(), _BY_NAME)


def unknown_status(status: str, known: Collection[str]) -> tuple[str, str]:
    """Describe a status that no run was ever seen with, and the fix."""
    meant = closest(status.casefold(), known)
    cure = f"Did you mean {meant}?" if meant else f"There are: {', '.join(sorted(known))}."
    return f"No run that was ever seen here has the status {status!r}.", cure


def key_of(name: KeyName) -> QueryKey:
    """A key by its meaning."""
    return next(key for key in KEYS if key.name == name)


class QueryToken(Struct, frozen=True):
    """A value or a word."""

    text: str
    """The text without quotes and escapes."""
    start: int
    end: int
    is_quoted: bool = False
    """Whether the token was quoted, and so is literal."""
    is_closed: bool = True
    """False: the closing quote is missing."""


class Term(Struct, frozen=True):
    """One condition, or one word."""

    start: int
    end: int
    is_negated: bool
    key: str | None
    """The key as written; None: the term is a word."""
    key_end: int
    """The index behind the colon; for a word, the index of its first character."""
    tokens: tuple[QueryToken, ...]
    """The condition's values, empty ones included; one for a word."""


def terms(line: str) -> Iterator[Term]:
    """The terms of a line, from left to right; together they cover everything except blanks."""
    end = 0
    while (match := _START.search(line, end)) is not None:
        start, at = match.start(), match.end()
        name = _NAME.match(line, at)
        if name is None or not is_key_like(name[1]):
            word = _token(line, at, _WORD)
            yield Term(start, end := word.end, at > start, None, at, (word,))
            continue
        tokens = [_token(line, name.end(), _VALUE)]
        while line[tokens[-1].end : tokens[-1].end + 1] == ",":
            tokens.append(_token(line, tokens[-1].end + 1, _VALUE))
        yield Term(start, end := tokens[-1].end, at > start, name[1], name.end(), tuple(tokens))


def is_key_like(name: str) -> bool:
    """Whether a name before a colon is meant as a key; others are part of a word, as in `gitlab:acme/api`."""
    return key_name(name) is not None or name.casefold() in COLUMNS or closest_key(name) is not None


def _token(line: str, start: int, plain: re.Pattern[str]) -> QueryToken:
    match = _QUOTED.match(line, start)
    if match is None:
        end = plain.match(line, start).end()  # type: ignore[union-attr]  # it matches nothing, too
        return QueryToken(line[start:end], start, end)
    text = _ESCAPED.sub(r"\1", match[1])
    return QueryToken(text, start, match.end(), is_quoted=True, is_closed=bool(match[2]))


def quoted(text: str) -> str:
    """Quote a text as one literal token."""
    return f"{QUOTE}{text.replace(ESCAPE, ESCAPE * 2).replace(QUOTE, ESCAPE + QUOTE)}{QUOTE}"
