"""Fuzzy search of names by Textual; names whose letters repeat too often are skipped, as they take it minutes."""

from collections.abc import Sequence
from math import prod
from typing import Final

from textual.fuzzy import FuzzySearch

_MOST_WAYS: Final = 500
"""Textual tries every way to place the letters: 500 take 10 ms, those of six among a hundred equal ones minutes."""


def fuzzy(query: str, name: str) -> tuple[float, Sequence[int]] | None:
    """Return a name's score (higher is better) and the places of the letters in it; None: no match."""
    if not query:
        return 0.0, ()
    letters, text = query.lower(), name.lower()
    may_be_many = letters not in text and prod(map(text.count, letters)) > _MOST_WAYS
    if may_be_many and _ways(letters, text) > _MOST_WAYS:
        return None
    # Where lower case changes the length, the places would be wrong: the case is compared as it is.
    score, positions = FuzzySearch(case_sensitive=len(text) != len(name), cache_size=1).match(query, name)
    # Of two names with equal scores the shorter one is better.
    return (score - len(name) / 1_000, positions) if score else None


def _ways(letters: str, text: str) -> int:
    """Count the ways to place the letters, or the first few of them, in the text in order."""
    ways = [1, *(0 for _ in letters)]
    for letter in text:
        for at in range(len(letters), 0, -1):
            if letters[at - 1] == letter:
                ways[at] += ways[at - 1]
    return sum(ways) - 1
