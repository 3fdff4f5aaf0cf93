"""One run as a line of the table: its cells as text and tone, without a style and without a screen."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.text import safe_text
from storage.records import RunRow
from widgets.badges import Badge, Tone, run_badge
from widgets.cells import fit
from widgets.runs.columns import ColumnKey, Layout, PlacedColumn
from widgets.runs.search_highlight import NOTHING, SearchHighlight
from widgets.times import span, started

FIELD_LIMIT: Final = 200
"""Characters of a foreign field that a table ever looks at."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The cells of a line that change by themselves."""

    started: str
    updated: str
    took: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One column's text, as wide as the column."""

    place: PlacedColumn
    text: str
    tone: Tone
    matches: tuple[tuple[int, int], ...] = ()
    """Ranges of the text that the search found."""


def row_times(row: RunRow, now: datetime, as_of: datetime | None = None) -> RowTimes:
    """The row's times as they read now; `as_of` is when the service last answered, where that is over."""
    return RowTimes(
        started(row.created_at or row.first_seen_at, now), started(row.updated_at, now), took(row, now, as_of)
    )


def took(row: RunRow, now: datetime, as_of: datetime | None = None) -> str:
    """How long the run took: so far while it is active, at least so long if it can no longer be observed."""
    if row.created_at is None:
        return "-"
    if row.is_final:
        return span((row.updated_at - row.created_at).total_seconds()) if row.updated_at is not None else "-"
    so_far = span(((as_of or now) - row.created_at).total_seconds())
    return so_far if as_of is None else f"≥{so_far}"


def row_cells(
    row: RunRow, layout: Layout, times: RowTimes, sought: SearchHighlight = NOTHING, *, stuck: bool = False
) -> Iterator[Cell]:
    """The line's cells from left to right.

    Args:
        row: The run.
        layout: Where its columns are.
        times: Its times, see `row_times`.
        sought: What is looked for; found again in repository, branch and run id.
        stuck: Whether the run takes far longer than its repository's runs do.
    """
    badge = _badge(row, stuck=stuck)
    texts: dict[ColumnKey, tuple[str, Tone]] = {
        "status": (badge.text, badge.tone),
        "repository": (safe_text(row.repository, limit=FIELD_LIMIT), "plain"),
        "branch": (safe_text(row.branch_name, limit=FIELD_LIMIT) or "(no branch)", "plain"),
        "started": (times.started, "quiet"),
        "updated": (times.updated, "quiet"),
        "took": (times.took, "quiet"),
        "run": (safe_text(row.run_id, limit=FIELD_LIMIT), "quiet"),
    }
    for placed in layout.placed:
        text, tone = texts[placed.column.key]
        shown = fit(text, placed.width, placed.column.cut)
        yield Cell(placed, shown, tone, tuple(sought.found(shown, placed.column.key)))


def _badge(row: RunRow, *, stuck: bool) -> Badge:
    badge = run_badge(row.status)
    if row.presence == "lost":
        return Badge("◌", "gone", "quiet")
    if row.presence == "unconfirmed":
        return Badge("◌", f"{badge.word}?", "quiet")
    return Badge(badge.glyph, f"{badge.word} !", "warn") if stuck else badge
