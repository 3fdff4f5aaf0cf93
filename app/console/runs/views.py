"""The query of the table: a view, which is a named line of the query language, and the order."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

from app.config import CACHE_FILE, Profile, Settings, ViewSettings, data_folder
from app.console.runs.preferences import Preferences, PreferencesFile
from app.console.runs.query_line import as_typed
from app.query import Query, parse
from storage.records import FIELD_BY_NAME, RunFilter, RunSort
from storage.records.grouping import Grouping

if TYPE_CHECKING:
    from storage.cache.first_paint import FirstPaint

ViewOrigin = Literal["built in", "configured", "saved"]
FIRST_ROWS: Final = 120
"""Rows of the first frame: more than any terminal has lines."""


@dataclass(frozen=True, slots=True)
class View:
    """A named line."""

    name: str
    query: str
    sort: RunSort | None = None
    """None: the table's current order."""
    origin: ViewOrigin = "built in"
    group: str | None = None
    """The grouping as written, empty for none. None: the table's current one."""
    empty: str = "No run matches this view"
    """Shown if no run matches."""


ALL: Final = View("All", "", empty="Reading the runs…")
BUILT_IN: Final = (
    ALL,
    View("Active", "is:active", empty="Nothing is running"),
    View("Failed 24h", "status:failed since:24h", empty="No run failed in the last 24 hours"),
    View("Stuck", "is:stuck", empty="No run is stuck"),
)


def views_of(configured: Iterable[ViewSettings], saved: Iterable[ViewSettings]) -> tuple[View, ...]:
    """All views, in the order of their tabs; of two with the same name the earlier one counts."""
    found = {view.name.casefold(): view for view in BUILT_IN}
    origins: tuple[tuple[ViewOrigin, Iterable[ViewSettings]], ...] = (("configured", configured), ("saved", saved))
    for origin, views in origins:
        for view in views:
            found.setdefault(view.name.casefold(), View(view.name, view.query, view.sort, origin, view.group))
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The current query: the line, which began as a view's and may have been changed, and the order."""

    view: View = ALL
    line: str = ""
    sort: RunSort = field(default_factory=RunSort)
    cursor: int | None = None
    """The cursor while the line is being typed: the value there may be incomplete. None: it is not being typed."""
    grouping: Grouping | None = None

    @classmethod
    def of(cls, view: View, sort: RunSort, grouping: Grouping | None = None) -> "TableQuery":
        """The query of the view, in this order and these groups unless the view has its own."""
        grouping = grouping if view.group is None else Grouping.read(view.group)
        return cls(view, view.query, view.sort or sort, grouping=grouping)

    @property
    def is_changed(self) -> bool:
        """Whether the line differs from the view's."""
        return self.line.split() != self.view.query.split()

    def query(self, now: datetime) -> Query:
        """Parse the line; a problem in the term that is being typed is not reported yet."""
        line = self.line if self.cursor is None else as_typed(self.line, self.cursor)
        return parse(line, now)

    def condition(self, now: datetime) -> RunFilter:
        """The filter as of now: `the last 24 hours` moves with the clock."""
        return self.query(now).filter


def chosen_order(column: str, before: RunSort) -> RunSort:
    """The order after choosing a column; choosing the current one reverses it."""
    if column == before.column:
        return RunSort(column, not before.descending)
    return RunSort(column, FIELD_BY_NAME[column].begins_descending)


def named(views: Iterable[View], name: str) -> View:
    """The view of that name, or else all runs."""
    return next((view for view in views if view.name.casefold() == name.casefold()), ALL)


def first_query(settings: Settings, preferences: Preferences) -> TableQuery:
    """The last view and order; a typed line is not restored."""
    view = named(views_of(settings.views, preferences.views), preferences.view)
    return TableQuery.of(view, preferences.sort, Grouping.read(preferences.group))


def first_picture(settings: Settings, profile: Profile, now: datetime) -> "FirstPaint | None":
    """The cached rows of the first query; None: the cache cannot be read as it is, or not at once."""
    from storage.cache.first_paint import peek

    query = first_query(settings, PreferencesFile.of(settings, profile).read())
    return peek(data_folder(settings, profile) / CACHE_FILE, query.condition(now), query.sort, FIRST_ROWS)
