"""The run table's columns: what each of them shows, how wide it is, and which ones the user chose."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from app.text import safe_text
from app.times import span, started
from storage.records import FIELD_BY_NAME, RunFigures, RunRow, Tone
from widgets.badges import Badge, run_badge
from widgets.cells import Cut

LEAST_WIDTH: Final = 4
MOST_WIDTH: Final = 200
FIELD_LIMIT: Final = 200
"""The most characters of a foreign field that a table looks at."""
RESTS: Final = timedelta(seconds=5)
"""How long the shown ages of an ended run may stay out of date."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The cells of a line that change with time."""

    started: str
    updated: str
    took: str
    is_live: bool = True
    """Whether the service confirmed the run lately."""


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What a row's cells are made of."""

    row: RunRow
    times: RowTimes
    figures: RunFigures
    is_stuck: bool


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


def _quiet(text: Callable[[RowFacts], str]) -> Callable[[RowFacts], tuple[str, Tone]]:
    return lambda facts: (text(facts), "quiet")


def _status(facts: RowFacts) -> tuple[str, Tone]:
    badge = _badge(facts.row, stuck=facts.is_stuck)
    return badge.text, badge.tone if facts.times.is_live else "quiet"


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A field as a column: its cell, and how it may grow."""

    key: str
    """The field's name."""
    width: int
    """The column's minimum width in cells."""
    cell: Callable[[RowFacts], tuple[str, Tone]]
    """The text and its tone."""
    grows: int = 0
    """The column's share of the spare cells."""
    most: int = 0
    """The column's maximum width in cells; 0: `width`."""
    cut: Cut = "end"
    frozen: bool = False
    """Stays in view while the others scroll sideways."""
    least: int = 0
    """The column's minimum width beside a pane, in cells; 0: `width`."""

    @property
    def name(self) -> str:
        """Its title."""
        return FIELD_BY_NAME[self.key].title or self.key

    @property
    def sort(self) -> str | None:
        """The order that a click on its title chooses; None: the cache has no such order."""
        return self.key if FIELD_BY_NAME[self.key].order else None


COLUMNS: Final = (
    RunColumn("status", 12, _status, frozen=True),
    RunColumn(
        "repository",
        16,
        lambda facts: (safe_text(facts.row.repository, limit=FIELD_LIMIT), "plain"),
        grows=2,
        most=44,
        cut="middle",
        frozen=True,
        least=12,
    ),
    RunColumn(
        "branch",
        20,
        lambda facts: (safe_text(facts.row.branch_name, limit=FIELD_LIMIT) or "(no branch)", "plain"),
        grows=3,
        most=60,
        least=14,
    ),
    RunColumn("started", 12, _quiet(lambda facts: facts.times.started)),
    RunColumn("updated", 12, _quiet(lambda facts: facts.times.updated)),
    RunColumn("took", 7, _quiet(lambda facts: facts.times.took)),
    RunColumn(
        "run",
        14,
        _quiet(lambda facts: safe_text(facts.row.run_id, limit=FIELD_LIMIT)),
        grows=2,
        most=40,
        cut="middle",
        least=8,
    ),
    RunColumn("turns", 5, _quiet(lambda facts: "" if facts.figures.turns is None else f"{facts.figures.turns:,}")),
    RunColumn("lines", 13, _quiet(lambda facts: _lines(facts.figures))),
    RunColumn("pull", 12, _quiet(lambda facts: "" if facts.figures.pull is None else f"#{facts.figures.pull}")),
)
"""All columns."""
COLUMN_KEYS: Final = tuple(column.key for column in COLUMNS)
_BY_KEY: Final = {column.key: column for column in COLUMNS}
DEFAULT_COLUMNS: Final = ("status", "repository", "branch", "started", "took", "run")
FIGURES: Final = frozenset({"turns", "lines", "pull"})
"""Columns whose values are read only while they are shown."""


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Which columns are shown, in which order and how wide; at least one is always shown."""

    shown: tuple[str, ...] = DEFAULT_COLUMNS
    widths: dict[str, int] = field(default_factory=dict)
    """The columns with a width of their own, in cells; the others take what fits."""

    @property
    def columns(self) -> tuple[RunColumn, ...]:
        """The columns, the frozen ones first."""
        found = [self._column(key) for key in self.shown]
        return tuple(sorted(found, key=lambda column: not column.frozen))

    @property
    def every_key(self) -> tuple[str, ...]:
        """All columns: the shown ones in their order, then the others."""
        shown = tuple(column.key for column in self.columns)
        return (*shown, *(key for key in COLUMN_KEYS if key not in shown))

    def toggled(self, key: str) -> "ColumnChoice":
        """The choice with the column shown, or hidden if it was shown."""
        if key not in self.shown:
            return replace(self, shown=(*self.shown, key))
        rest = tuple(other for other in self.shown if other != key)
        return replace(self, shown=rest) if rest else self

    def moved(self, key: str, to: str) -> "ColumnChoice":
        """The choice with the column in another's place; frozen columns stay in front."""
        order = [column.key for column in self.columns]
        if key not in order or to not in order or _BY_KEY[key].frozen != _BY_KEY[to].frozen:
            return self
        index = order.index(to)
        order.remove(key)
        order.insert(index, key)
        return replace(self, shown=tuple(order))

    def sized(self, key: str, width: int | None) -> "ColumnChoice":
        """The choice with the column this wide; None: as wide as fits."""
        widths = {other: cells for other, cells in self.widths.items() if other != key}
        if width is not None:
            widths[key] = min(MOST_WIDTH, max(LEAST_WIDTH, width))
        return replace(self, widths=widths)

    def width(self, key: str) -> int | None:
        """The column's own width; None: what fits."""
        return self.widths.get(key)

    def _column(self, key: str) -> RunColumn:
        column = _BY_KEY[key]
        width = self.widths.get(key)
        return column if width is None else replace(column, width=width, grows=0, most=width, least=0)
