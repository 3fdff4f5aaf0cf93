"""How serious a code host's status is; the service's contract names no statuses, so unknown words are no alarm."""

from collections.abc import Collection
from typing import Final, Literal

Level = Literal["well", "impaired", "bad"]

BAD: Final = frozenset({"unauthorized", "unreachable", "unhealthy", "failed", "error", "down"})
"""Words that surely mean that nothing works; in lower case."""


def level(status: str, healthy_words: Collection[str]) -> Level:
    """The status as one of three levels; the healthy words are in lower case."""
    word = status.casefold()
    if word in healthy_words:
        return "well"
    return "bad" if word in BAD else "impaired"
