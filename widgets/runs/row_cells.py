"""A run as the cells of its row: text, tone and matches, without styles or a screen."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from app.text import safe_text
from app.times import span, started
from storage.records import RunFilter, RunRow
from storage.records.run import NO_FIGURES, RunFigures
from widgets.badges import Badge, Tone, run_badge
from widgets.cells import fit
from widgets.runs.columns import ColumnKey, Layout, PlacedColumn

MatchRange = tuple[int, int]
"""A range of characters, without its end."""
FIELD_LIMIT: Final = 200
"""The most characters of a foreign field that a table looks at."""
RESTS: Final = timedelta(seconds=5)
"""How long the shown ages of an ended run may stay out of date."""


@dataclass(frozen=True, slots=True)
class SearchHighlight:
    """Text to highlight: words in every searched column, patterns in one each."""

    words: tuple[str, ...] = ()
    """Case-folded."""
    repositories: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()

    @classmethod
    def of(cls, condition: RunFilter) -> Self:
        """The searched text of a filter."""
        return cls(tuple(condition.search.casefold().split()), condition.repositories, condition.branches)

    def found(self, shown: str, column: ColumnKey) -> Iterator[MatchRange]:
        """The matching ranges of a cell's text, which may be padded or cut."""
        if column not in {"repository", "branch", "run"}:
            return
        yield from _words(shown, self.words)
        patterns = {"repository": self.repositories, "branch": self.branches}.get(column, ())
        for pattern in patterns:
            yield from _pattern(shown, pattern)


NO_HIGHLIGHT: Final = SearchHighlight()


def _words(shown: str, words: tuple[str, ...]) -> Iterator[MatchRange]:
    """The ranges of the words; none in text whose length changes with case folding."""
    folded = shown.casefold()
    if len(folded) != len(shown):
        return
    for word in words:
        yield from _everywhere(folded, word)


def _pattern(shown: str, pattern: str) -> Iterator[MatchRange]:
    """The literal pieces of a pattern: first and last at the ends of the text, the others anywhere."""
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


def _everywhere(text: str, piece: str) -> Iterator[MatchRange]:
    start = text.find(piece)
    while piece and start >= 0:
        yield start, start + len(piece)
        start = text.find(piece, start + len(piece))


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The cells of a line that change with time."""

    started: str
    updated: str
    took: str
    is_live: bool = True
    """Whether the service confirmed the run lately."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One column's text, as wide as the column."""

    placed: PlacedColumn
    text: str
    tone: Tone
    matches: tuple[tuple[int, int], ...] = ()
    """Ranges of the text that the search matched."""


def rests(row: RunRow, now: datetime) -> bool:
    """Whether the row's times change at most once a minute, so that a late update is not noticed."""
    latest = row.updated_at or row.created_at
    return row.took.since is None and latest is not None and now - latest > timedelta(minutes=1)


def row_times(
    row: RunRow, now: datetime, as_of: datetime | None = None, confirmed_for: timedelta = timedelta.max
) -> RowTimes:
    """The row's times as they read now; `as_of` is when the service last answered, if it has stopped."""
    return RowTimes(
        started(row.created_at or row.first_seen_at, now),
        started(row.updated_at, now),
        took(row, now, as_of),
        is_live=row.last_seen_at is None or now - row.last_seen_at <= confirmed_for,
    )


def took(row: RunRow, now: datetime, as_of: datetime | None = None) -> str:
    """How long the run worked; so far if it is active, and at least that if the service does not answer."""
    seconds = row.took.until(as_of or now)
    if seconds is None:
        return "-"
    is_short = row.took.since is not None and as_of is not None
    return f"≥{span(seconds)}" if is_short else span(seconds)


def row_cells(
    row: RunRow,
    layout: Layout,
    times: RowTimes,
    sought: SearchHighlight = NO_HIGHLIGHT,
    figures: RunFigures = NO_FIGURES,
    *,
    stuck: bool = False,
) -> Iterator[Cell]:
    """The line's cells from left to right; `times` are from `row_times`."""
    badge = _badge(row, stuck=stuck)
    texts: dict[ColumnKey, tuple[str, Tone]] = {
        "status": (badge.text, badge.tone if times.is_live else "quiet"),
        "repository": (safe_text(row.repository, limit=FIELD_LIMIT), "plain"),
        "branch": (safe_text(row.branch_name, limit=FIELD_LIMIT) or "(no branch)", "plain"),
        "started": (times.started, "quiet"),
        "updated": (times.updated, "quiet"),
        "took": (times.took, "quiet"),
        "run": (safe_text(row.run_id, limit=FIELD_LIMIT), "quiet"),
        "turns": ("" if figures.turns is None else f"{figures.turns:,}", "quiet"),
        "lines": (_lines(figures), "quiet"),
        "pull": ("" if figures.pull is None else f"#{figures.pull}", "quiet"),
    }
    for placed in layout.placed:
        text, tone = texts[placed.column.key]
        shown = fit(text, placed.width, placed.column.cut)
        yield Cell(placed, shown, tone, tuple(sought.found(shown, placed.column.key)))


def _lines(figures: RunFigures) -> str:
    if figures.additions is None and figures.deletions is None:
        return ""
    return f"+{figures.additions or 0:,} -{figures.deletions or 0:,}"


def _badge(row: RunRow, *, stuck: bool) -> Badge:
    badge = run_badge(row.status, is_final=row.is_final)
    if row.presence == "lost":
        return Badge("◌", "gone", "quiet")
    if row.presence == "unconfirmed":
        return Badge("◌", f"{badge.word}?", "quiet")
    return Badge(badge.glyph, f"{badge.word} !", "warn") if stuck else badge
