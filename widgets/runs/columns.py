"""The run table's columns: the content of each, and the ones that the user chose."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from app.engine.text import safe_text
from app.engine.times import span, start_text
from storage.records import RunRow, Tone
from widgets.kit.badges import Badge, run_badge
from widgets.kit.cells import Column, Layout, PlacedColumn, lay_out, width_needed

GUTTER: Final = 3
"""Cells before the first column: the cursor, the mark and a space."""
FIELD_LIMIT: Final = 200
"""The most characters of a foreign field that a table looks at."""
UNKNOWN: Final = "?"
"""Stands for a value that is not known, which is not the same as none."""
MAX_AGE_LAG: Final = timedelta(seconds=5)
"""How long the shown ages of an ended run may stay out of date."""


class RowTimes(Struct, frozen=True):
    """The cells of a line that change with time."""

    started: str
    updated: str
    took: str
    is_live: bool = True
    """Whether the service confirmed the run lately."""


class RowFacts(Struct, frozen=True):
    """The facts from which a row's cells are made."""

    row: RunRow
    times: RowTimes
    is_stuck: bool


def ages_slowly(row: RunRow, now: datetime) -> bool:
    """Whether the row's times change at most once a minute, so that a late update is not noticed."""
    latest = row.updated_at or row.created_at
    return row.took.since is None and latest is not None and now - latest > timedelta(minutes=1)


def row_times(row: RunRow, now: datetime, as_of: datetime | None, confirmed_for: timedelta) -> RowTimes:
    """The row's times as of now; `as_of` is when the service last answered, if it stopped answering.

    An active run took so long so far, or at least that long if the service does not answer.
    """
    seconds = row.took.until(as_of or now)
    at_least = "≥" if row.took.since is not None and as_of is not None else ""
    return RowTimes(
        start_text(row.created_at or row.first_seen_at, now),
        start_text(row.updated_at, now),
        "-" if seconds is None else f"{at_least}{span(seconds)}",
        is_live=row.last_seen_at is None or now - row.last_seen_at <= confirmed_for,
    )


def _text(text: Callable[[RowFacts], str], tone: Tone = "plain") -> Callable[[RowFacts], tuple[str, Tone]]:
    return lambda facts: (safe_text(text(facts), limit=FIELD_LIMIT), tone)


def _status(facts: RowFacts) -> tuple[str, Tone]:
    badge = run_badge(facts.row.status, is_final=facts.row.is_final)
    row = facts.row
    if row.presence in {"lost", "unconfirmed"}:
        badge = Badge("◌", "gone" if row.presence == "lost" else f"{badge.word}?", "quiet")
    elif facts.is_stuck:
        badge = Badge(badge.glyph, f"{badge.word} !", "warn")
    return badge.text, badge.tone if facts.times.is_live else "quiet"


def _result(facts: RowFacts) -> tuple[str, Tone]:
    return safe_text(facts.row.summary.result, limit=FIELD_LIMIT), "plain" if facts.row.is_final else "busy"


def _findings(facts: RowFacts) -> tuple[str, Tone]:
    if (findings := facts.row.summary.findings) is None:
        return UNKNOWN, "quiet"
    if findings.blocker:
        return str(findings), "bad"
    return str(findings), "warn" if findings.major else "plain"


class RunColumn(Column, frozen=True, kw_only=True):
    """A field as a column; its title is the field's name, and the order that a click on it chooses."""

    cell: Callable[[RowFacts], tuple[str, Tone]]
    gap: int = 2
    ample: int = 0
    """The width that the column needs before a pane fits next to the table; 0: `width`."""


COLUMNS: Final = (
    RunColumn("status", 12, cell=_status, frozen=True),
    RunColumn(
        "repository", 12, 3, 44, cell=_text(lambda facts: facts.row.repository), ample=16, cut="middle", frozen=True
    ),
    RunColumn("asked", 18, 8, 120, cell=_text(lambda facts: facts.row.summary.asked), ample=34),
    RunColumn("result", 12, 3, 60, cell=_result, ample=18),
    RunColumn("branch", 18, 2, 60, cell=_text(lambda facts: facts.row.branch_name or "(no branch)"), ample=22),
    RunColumn("started", 12, cell=_text(lambda facts: facts.times.started, "quiet")),
    RunColumn("updated", 12, cell=_text(lambda facts: facts.times.updated, "quiet")),
    RunColumn("took", 7, cell=_text(lambda facts: facts.times.took, "quiet")),
    RunColumn("run", 14, cell=_text(lambda facts: facts.row.own_id, "quiet"), grows=2, most=40, cut="middle"),
    RunColumn("findings", 12, cell=_findings, grows=1, most=36),
    RunColumn("agent", 12, cell=_text(lambda facts: facts.row.summary.agent or UNKNOWN), grows=1, most=30),
)
PROFILE: Final = RunColumn("profile", 12, cell=_text(lambda facts: facts.row.profile), grows=1, most=24, frozen=True)
"""The column that only a list of several profiles has."""
PlacedRunColumn = PlacedColumn[RunColumn]
RunLayout = Layout[RunColumn]
COLUMN_KEYS: Final = tuple(column.title for column in COLUMNS)
HIDDEN_IF_EMPTY: Final = ("asked", "result")
"""The columns that take no room while no run has a value in them: parts of a run's summary."""
COLUMN_BY_KEY: Final = {column.title: column for column in (*COLUMNS, PROFILE)}
DEFAULT_COLUMNS: Final = ("status", "repository", "asked", "result", "started", "took", "branch")


class ColumnChoice(Struct, frozen=True):
    """Which columns are shown, in which order and how wide; at least one is always shown."""

    shown: tuple[str, ...] = DEFAULT_COLUMNS
    widths: dict[str, int] = field(default_factory=dict)
    """The columns with a fixed width, in cells; the others get the remaining width."""

    @property
    def columns(self) -> tuple[RunColumn, ...]:
        """The columns, the frozen ones first."""
        columns = []
        for key in self.shown:
            column = COLUMN_BY_KEY[key]
            width = self.widths.get(key)
            columns.append(column if width is None else replace(column, width=width, grows=0, most=width, ample=0))
        return tuple(sorted(columns, key=lambda column: not column.frozen))

    @property
    def every_key(self) -> tuple[str, ...]:
        """All columns: the shown ones in their order, then the others."""
        names = tuple(column.title for column in self.columns)
        return (*names, *(key for key in COLUMN_KEYS if key not in names))

    def with_toggled(self, key: str) -> "ColumnChoice":
        """The choice with the column shown, or hidden if it was shown."""
        others = tuple(other for other in self.shown if other != key)
        return replace(self, shown=(others or self.shown) if key in self.shown else (*others, key))

    def with_moved(self, key: str, step: int) -> "ColumnChoice":
        """The choice with the column moved by this many places; frozen columns stay in front."""
        columns = list(self.columns)
        place = next((index for index, column in enumerate(columns) if column.title == key), -1)
        target = place + step
        if place < 0 or not 0 <= target < len(columns) or columns[place].frozen != columns[target].frozen:
            return self
        columns.insert(target, columns.pop(place))
        return replace(self, shown=tuple(column.title for column in columns))

    def with_width(self, key: str, width: int | None) -> "ColumnChoice":
        """The choice with the column this wide; None: as wide as fits."""
        widths = {other: cells for other, cells in self.widths.items() if other != key}
        if width is not None:
            widths[key] = min(200, max(4, width))
        return replace(self, widths=widths)


class ColumnArrangement:
    """The chosen columns, laid out for a view."""

    def __init__(self, choice: ColumnChoice) -> None:
        self.choice = choice
        self.is_limited = False
        """Whether they stop growing at `ample_width`, so that they need not shrink for a pane on a wider screen."""
        self.filled: frozenset[str] = frozenset()
        """The columns of `HIDDEN_IF_EMPTY` that have had a value."""
        self.fit(0)

    def fit(self, width: int) -> None:
        """Lay out the columns for a view of this width, without those that are empty for every run."""
        self.width = width
        columns = [
            shown for shown in self.choice.columns if shown.title in self.filled or shown.title not in HIDDEN_IF_EMPTY
        ]
        self.ample_width = width_needed([replace(shown, width=shown.ample or shown.width) for shown in columns], GUTTER)
        self.layout = lay_out(min(width, self.ample_width) if self.is_limited else width, columns, GUTTER)
