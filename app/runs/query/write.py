"""Writes a filter as a line, which `parse` reads back as the same filter."""

from collections.abc import Iterator
from datetime import UTC, datetime

from app.runs.query.parse import read_value
from app.runs.query.terms import STATES, UNKNOWN, KeyName, quoted, terms
from storage.records import RunFilter, RunSort


def written(condition: RunFilter) -> str:
    """The filter as a line of the query language, in one fixed order; times are written out in UTC."""
    return " ".join(_terms(condition))


def written_order(sort: RunSort) -> str:
    """The text that `read_order` reads as this order."""
    return f"{'-' if sort.descending else ''}{sort.column}"


def _terms(condition: RunFilter) -> Iterator[str]:
    yield from (f"is:{state}" for state in STATES if getattr(condition, state))
    yield from _lists("status", condition.statuses, condition.not_statuses)
    yield from _lists("repo", condition.repositories, condition.not_repositories)
    yield from _lists("branch", condition.branches, condition.not_branches)
    yield from _lists("agent", condition.agents, condition.not_agents)
    yield from _lists("finding", condition.findings, condition.not_findings)
    if condition.since is not None:
        yield f"since:{_time(condition.since)}"
    if condition.until is not None:
        yield f"until:{_time(condition.until)}"
    yield from map(_word, condition.search.split())


def _lists(key: KeyName, asked: tuple[str, ...], excluded: tuple[str, ...]) -> Iterator[str]:
    for sign, values in (("", asked), ("-", excluded)):
        if values:
            yield f"{sign}{key}:{','.join(value_text(value, key) for value in values)}"


def value_text(value: str, key: KeyName) -> str:
    """A value as written after its key, quoted only where needed."""
    if key == "agent" and not value:
        return UNKNOWN
    read = list(terms(f"{key}:{value}"))
    if value and len(read) == 1 and len(read[0].tokens) == 1:
        (token,) = read[0].tokens
        is_pattern = key == "status" and "*" in value
        if not token.is_quoted and token.text == value == read_value(token, key) and not is_pattern:
            return value
    return quoted(value)


def _word(word: str) -> str:
    read = list(terms(word))
    is_plain = len(read) == 1 and read[0].key is None and not read[0].is_negated and not read[0].tokens[0].is_quoted
    return word if is_plain else quoted(word)


def _time(moment: datetime) -> str:
    # A date alone would mean its whole day.
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
