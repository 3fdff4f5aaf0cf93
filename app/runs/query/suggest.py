"""Completions for a line: keys, and their known values."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from app.runs.query.parse import value_text
from app.runs.query.terms import KEYS, STATES, KeyName, Term, key_name, terms
from storage.records import KNOWN_STATUSES
from storage.records.query import FINDINGS, Suggestion

MOST: Final = 12
"""Maximum number of suggestions."""
_TIMES: Final = ("1h", "24h", "7d", "30d")
_SHORTEST_NAME: Final = 2
"""Characters of a word before it is completed as a repository."""


class Vocabulary(Struct, frozen=True):
    """Known names, best first."""

    repositories: tuple[str, ...] = ()
    """Labels."""
    branches: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    """The statuses in addition to those that the spec names."""


def suggestions(line: str, cursor: int, known: Vocabulary) -> tuple[Suggestion, ...]:
    """Complete the token that the cursor touches, from 0 to the line's length."""
    current = next((term for term in terms(line) if term.start <= cursor <= term.end), None)
    if current is None:
        options = list(_keys("", cursor, cursor))
    elif current.key is None:
        (token,) = current.tokens
        typed = line[current.key_end : cursor]
        options = [] if token.is_quoted else list(_keys(typed, token.start, token.end))
        if len(typed) >= _SHORTEST_NAME and not token.is_quoted:
            for label in _matching(typed, known.repositories):
                text = f"repo:{value_text(label, 'repo')}"
                options.append(Suggestion(token.start, token.end, text, "The repository."))
    elif cursor < current.key_end:
        options = list(_keys(current.key, current.key_end - len(current.key) - 1, current.key_end))
    else:
        options = list(_values(current, cursor, known))
    return tuple(option for option in options if line[option.start : option.end] != option.insert)[:MOST]


def _keys(start_of_name: str, start: int, end: int) -> Iterator[Suggestion]:
    for key in KEYS:
        if key.name.startswith(start_of_name.casefold()):
            yield Suggestion(start, end, f"{key.name}:", key.about)


def _values(term: Term, cursor: int, known: Vocabulary) -> Iterator[Suggestion]:
    wanted = key_name(term.key or "")
    if wanted is None:
        return
    token = next(token for token in term.tokens if cursor <= token.end)
    others = {each.text for each in term.tokens if each is not token}
    typed = token.text[: max(0, cursor - token.start - int(token.is_quoted))]
    for value in _matching(typed, _known(wanted, known)):
        if value not in others:
            text = value if wanted in {"since", "until", "is"} else value_text(value, wanted)
            yield Suggestion(token.start, token.end, text)


def _known(wanted: KeyName, known: Vocabulary) -> Iterable[str]:
    match wanted:
        case "status":
            return dict.fromkeys((*sorted(KNOWN_STATUSES), *known.statuses))
        case "repo":
            owners = [f"{label.rpartition('/')[0]}/*" for label in known.repositories if "/" in label]
            return dict.fromkeys((*known.repositories, *owners))
        case "branch":
            return known.branches
        case "agent":
            return known.agents
        case "finding":
            return FINDINGS
        case "is":
            return STATES
        case _:
            return _TIMES


def _matching(typed: str, values: Iterable[str]) -> Iterator[str]:
    """The values that contain the typed text, those that begin with it first."""
    stem = typed.casefold()
    inside = [value for value in values if stem in value.casefold()]
    yield from sorted(inside, key=lambda value: not value.casefold().startswith(stem))
