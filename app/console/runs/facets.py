"""What the filter says of status, repository, branch and time, in a word each."""

from collections.abc import Iterator, Sequence
from typing import Final

from app.query.terms import KeyName, key_name, terms
from app.text import safe_text
from storage.records import RunFilter
from widgets.filter.chips import Facet

ANY: Final = "any"


def facets(line: str, condition: RunFilter) -> tuple[Facet, ...]:
    """The facets, for the filter bar."""
    found = (
        ("status", [*_states(condition), *_values(condition.statuses, condition.not_statuses)]),
        ("repository", list(_values(condition.repositories, condition.not_repositories))),
        ("branch", list(_values(condition.branches, condition.not_branches))),
        ("started", list(_times(line))),
    )
    return tuple(Facet(name, safe_text(_brief(values), limit=60), bool(values)) for name, values in found)


def written_limit(line: str, key: KeyName) -> str:
    """A time limit as written in the line; empty where there is none."""
    return next((term.tokens[0].text for term in terms(line) if term.key and key_name(term.key) == key), "")


def _states(condition: RunFilter) -> Iterator[str]:
    if condition.active:
        yield "active"
    if condition.stuck:
        yield "stuck"


def _values(asked: Sequence[str], excluded: Sequence[str]) -> Iterator[str]:
    yield from asked
    yield from (f"not {value}" for value in excluded)


def _times(line: str) -> Iterator[str]:
    for key, word in (("since", "since"), ("until", "until")):
        text = written_limit(line, key)  # type: ignore[arg-type]  # both are keys
        if text:
            yield f"{word} {text}"


def _brief(values: Sequence[str]) -> str:
    if not values:
        return ANY
    return values[0] if len(values) == 1 else f"{values[0]} +{len(values) - 1}"
