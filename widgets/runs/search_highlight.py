"""What is looked for among the runs, and where a cell shows it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from storage.records import RunFilter
from widgets.runs.columns import ColumnKey

Span = tuple[int, int]
"""From this character to before that one."""


@dataclass(frozen=True, slots=True)
class SearchHighlight:
    """Words for every column that is searched, and patterns for one each; what is excluded is nowhere to be seen."""

    words: tuple[str, ...] = ()
    """Folded."""
    repositories: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    @classmethod
    def of(cls, wanted: RunFilter) -> Self:
        """What a filter looks for."""
        return cls(tuple(wanted.search.casefold().split()), wanted.repositories, wanted.branches)

    def found(self, shown: str, column: ColumnKey) -> Iterator[Span]:
        """Where a cell's text, padded or cut as it is, shows what is looked for."""
        if column not in {"repository", "branch", "run"}:
            return
        yield from _words(shown, self.words)
        patterns = {"repository": self.repositories, "branch": self.branches}.get(column, ())
        for pattern in patterns:
            yield from _pattern(shown, pattern)


NOTHING: Final = SearchHighlight()


def _words(shown: str, words: tuple[str, ...]) -> Iterator[Span]:
    """Where the words are; nothing for text whose case cannot be folded in place."""
    folded = shown.casefold()
    if len(folded) != len(shown):
        return
    for word in words:
        yield from _everywhere(folded, word)


def _pattern(shown: str, pattern: str) -> Iterator[Span]:
    """What is written out in a pattern: its beginning and its end at those of the text, the rest wherever it is."""
    text = shown.rstrip()
    first, *rest = pattern.split("*")
    if not rest:
        yield from [(0, len(text))] if text == pattern else []
        return
    if first and text.startswith(first):
        yield 0, len(first)
    *middle, last = rest
    for piece in middle:
        yield from _everywhere(text, piece)
    if last and text.endswith(last):
        yield len(text) - len(last), len(text)


def _everywhere(text: str, piece: str) -> Iterator[Span]:
    start = text.find(piece)
    while piece and start >= 0:
        yield start, start + len(piece)
        start = text.find(piece, start + len(piece))
