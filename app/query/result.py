"""What a line of the query language comes to."""

from dataclasses import dataclass
from typing import Literal

from storage.records import RunFilter

SpanKind = Literal["sign", "key", "value", "word", "problem"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the line and what it is, for highlighting; blanks and commas belong to none."""

    start: int
    """Index of its first character, from 0."""
    end: int
    """Index behind its last character."""
    kind: SpanKind


@dataclass(frozen=True, slots=True)
class Problem:
    """A piece of the line that means nothing; the rest of the line still counts."""

    start: int
    """Index of its first character, from 0."""
    end: int
    """Index behind its last character; equal to `start` where something is missing."""
    message: str
    """What is wrong. It may quote the line: foreign text, not yet safe to print."""
    cure: str
    """What to write instead."""

    def __str__(self) -> str:
        return f"at character {self.start + 1}: {self.message} {self.cure}"


@dataclass(frozen=True, slots=True)
class Query:
    """A line, understood as far as it can be."""

    filter: RunFilter
    """What the sound parts of the line ask for; times in it are as of the `now` that was given."""
    problems: tuple[Problem, ...]
    """In the order of the line; empty: all of it was understood."""
    spans: tuple[Span, ...]
    """In the order of the line, not overlapping."""
