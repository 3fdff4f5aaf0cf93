"""The result of parsing a line, and the combination of two filters."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from storage.records import RunFilter

SpanKind = Literal["sign", "key", "value", "word", "problem"]


class TextSpan(NamedTuple):
    """A part of the line and its kind, for highlighting; blanks and commas have none."""

    start: int
    """Index of its first character, from 0."""
    end: int
    """Index behind its last character."""
    kind: SpanKind


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """A part of the line that is not valid; the rest still counts."""

    start: int
    """Index of its first character, from 0."""
    end: int
    """Index behind its last character; equal to `start` where something is missing."""
    message: str
    """The mistake. It may quote the line: foreign text, not yet safe to print."""
    cure: str
    """The correction."""

    def __str__(self) -> str:
        return f"at character {self.start + 1}: {self.message} {self.cure}"


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed line."""

    filter: RunFilter
    """The filter of the valid parts; times in it are relative to the given `now`."""
    problems: tuple[QueryProblem, ...]
    """In the order of the line; empty if the whole line is valid."""
    spans: tuple[TextSpan, ...]
    """In the order of the line, not overlapping."""


def both(one: RunFilter, other: RunFilter) -> RunFilter:
    """Combine two filters as if they stood in one line: lists join, limits tighten, words add up."""
    return replace(
        one,
        statuses=_joined(one.statuses, other.statuses),
        not_statuses=_joined(one.not_statuses, other.not_statuses),
        repositories=_joined(one.repositories, other.repositories),
        not_repositories=_joined(one.not_repositories, other.not_repositories),
        branches=_joined(one.branches, other.branches),
        not_branches=_joined(one.not_branches, other.not_branches),
        since=max((limit for limit in (one.since, other.since) if limit), default=None),
        until=min((limit for limit in (one.until, other.until) if limit), default=None),
        search=" ".join(part for part in (one.search, other.search) if part),
        active=one.active or other.active,
        ended=one.ended or other.ended,
        stuck=one.stuck or other.stuck,
    )


def _joined(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
