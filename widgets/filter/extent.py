"""How much of how much is on show, never a part called the whole."""

from dataclasses import dataclass
from datetime import datetime

from storage.records import Coverage
from widgets.times import day


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of how much is on show."""

    matching: int
    held: int
    """Runs in the cache."""
    coverage: Coverage
    is_filtered: bool
    is_counted: bool = True
    """False: `matching` are those found so far; there may be more."""


def extent_text(extent: Extent, now: datetime, *, wide: bool) -> str:
    """`1,204 of 48,231 · complete since 1 May`, or less of it."""
    so_far = "" if extent.is_counted else "+"
    of = f"{extent.matching:,}{so_far} of {extent.held:,}" if extent.is_filtered else f"{extent.held:,}"
    coverage = extent.coverage
    if coverage.whole:
        return f"{of} {'runs · complete' if wide and not extent.is_filtered else '· complete' if wide else '· all'}"
    if coverage.complete_since is None and not extent.held:
        return ""
    if coverage.complete_since is None:
        return f"{of} · {'history not complete yet' if wide else 'partial'}"
    since = day(coverage.complete_since, now)
    return f"{of} · {'complete since' if wide else 'since'} {since}"
