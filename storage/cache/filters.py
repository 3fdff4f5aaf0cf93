"""A filter as SQL conditions; what people type is bound, never spliced."""

from dataclasses import dataclass
from typing import Final

from storage.records import FINAL_STATUSES, RunFilter
from storage.storable import storable
from storage.times import NO_TIME_US, to_us

MAX_WORDS: Final = 32
"""Further words of a search are left out: SQLite's expressions have a depth limit, and nobody types as many."""

_LATEST_US: Final = 2**62

_ACTIVE: Final = "status NOT IN ({})".format(", ".join(f"'{status}'" for status in sorted(FINAL_STATUSES)))
"""Spelt as in the index `runs_active`, not bound: only so does SQLite see that the index answers it."""


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on `runs` and what is bound to it."""

    sql: str
    parameters: tuple[str | int, ...]


def where(wanted: RunFilter) -> Where:
    """The condition that a run must meet to get through the filter."""
    parts = [
        _among("status", wanted.statuses),
        _negated(_among("status", wanted.not_statuses)),
        Where(_ACTIVE, ()) if wanted.active else None,
        Where("id IN (SELECT run FROM stuck)", ()) if wanted.stuck else None,
        _matching("repository", wanted.repositories),
        _negated(_matching("repository", wanted.not_repositories)),
        _matching("branch", wanted.branches),
        _negated(_matching("branch", wanted.not_branches)),
        _created(wanted),
        *(_occurring(word) for word in search_words(wanted.search)),
    ]
    return _joined([part for part in parts if part is not None], " AND ") or Where("1", ())


def both(one: Where, other: Where) -> Where:
    """A condition that is met where both are."""
    return Where(f"{one.sql} AND {other.sql}", (*one.parameters, *other.parameters))


def search_text(run_id: str, repository: str, branch: str) -> str:
    """What a search looks into: folded, so that case does not count in any script; no word spans two lines."""
    return f"{run_id}\n{repository}\n{branch}".casefold()


def search_words(search: str) -> tuple[str, ...]:
    """The words that must all occur."""
    return tuple(storable(search).casefold().split()[:MAX_WORDS])


def _occurring(word: str) -> Where:
    # Not LIKE: here nothing has to be escaped, and _ and % are only characters.
    return Where("instr(search, ?) > 0", (word,))


def _among(column: str, values: tuple[str, ...]) -> Where | None:
    if not values:
        return None
    marks = ", ".join("?" * len(values))
    return Where(f"{column} IN ({marks})", tuple(map(storable, values)))


def _matching(column: str, patterns: tuple[str, ...]) -> Where | None:
    """Any of these: names as they are, or with `*` for anything."""
    exact = _among(column, tuple(pattern for pattern in patterns if "*" not in pattern))
    globs = [Where(f"{column} GLOB ?", (_glob(pattern),)) for pattern in patterns if "*" in pattern]
    return _joined([part for part in (exact, *globs) if part is not None], " OR ")


def _glob(pattern: str) -> str:
    """For SQLite's GLOB, in which only the star keeps its power; stars in a row would only cost time."""
    pieces = (piece.replace("[", "[[]").replace("?", "[?]") for piece in storable(pattern).split("*"))
    text = "*".join(pieces)
    while "**" in text:
        text = text.replace("**", "*")
    return text


def _created(wanted: RunFilter) -> Where | None:
    if wanted.since is None and wanted.until is None:
        return None
    since_us = NO_TIME_US + 1 if wanted.since is None else to_us(wanted.since)
    until_us = _LATEST_US if wanted.until is None else to_us(wanted.until)
    return Where("created_us BETWEEN ? AND ?", (since_us, until_us))


def _negated(part: Where | None) -> Where | None:
    return None if part is None else Where(f"NOT ({part.sql})", part.parameters)


def _joined(parts: list[Where], word: str) -> Where | None:
    if not parts:
        return None
    sql = word.join(part.sql for part in parts)
    return Where(f"({sql})" if len(parts) > 1 else sql, tuple(p for part in parts for p in part.parameters))
