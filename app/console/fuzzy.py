"""Names found by a few of their letters, by Textual's search; names whose letters repeat too often are kept from it."""

from collections.abc import Sequence
from math import prod
from typing import Final

from textual.fuzzy import FuzzySearch

_MOST_WAYS: Final = 500
"""Textual tries every way to place the letters: of six among a hundred equal ones for minutes, of these for 10 ms."""


def fuzzy(query: str, name: str) -> tuple[float, Sequence[int]] | None:
    """The score of a name, more is better, and the places of the letters in it; None: it does not match."""
    if not query:
        return 0.0, ()
    letters, text = query.lower(), name.lower()
    may_be_many = letters not in text and prod(map(text.count, letters)) > _MOST_WAYS
    if may_be_many and _ways(letters, text) > _MOST_WAYS:
        return None
    # Lower case must not move the letters.
    score, found = FuzzySearch(case_sensitive=len(text) != len(name), cache_size=1).match(query, name)
    # Of equals the shorter name.
    return (score - len(name) / 1_000, found) if score else None


def _ways(letters: str, text: str) -> int:
    """In how many ways the letters, or the first of them, can be placed in the text, in their order."""
    ways = [1, *(0 for _ in letters)]
    for letter in text:
        for at in range(len(letters), 0, -1):
            if letters[at - 1] == letter:
                ways[at] += ways[at - 1]
    return sum(ways) - 1
