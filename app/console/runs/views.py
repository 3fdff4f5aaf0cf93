"""The query of the table: a view, which is a named line of the query language, and the order.

Changes keep the rest of a line as it was typed.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from app.config import CACHE_FILE, Profile, Settings, ViewSettings, data_folder
from app.console.runs.preferences import Preferences, PreferencesFile
from app.query import Query, QueryProblem, parse
from app.query.parse import given
from app.query.terms import KeyName, key_name, terms
from app.query.write import value_text
from app.text import SafeText, safe_text
from storage.records import FIELD_BY_NAME, KNOWN_STATUSES, RunFilter, RunSort
from storage.records.query import Grouping

_SENTENCES: Final = r"(?<=[.?]) "
_TIMED: Final[frozenset[KeyName]] = frozenset({"since", "until", "is"})


def replaced(line: str, keys: Collection[KeyName], new: Iterable[str]) -> str:
    """Replace all terms with one of these keys; without any, add at the end."""
    kept: list[str] = []
    first: int | None = None
    for term in terms(line):
        if term.key is not None and key_name(term.key) in keys:
            first = len(kept) if first is None else first
        else:
            kept.append(line[term.start : term.end])
    index = len(kept) if first is None else first
    return " ".join((*kept[:index], *new, *kept[index:]))


def listed(key: KeyName, asked: Iterable[str], excluded: Iterable[str] = ()) -> Iterator[str]:
    """The terms that ask for some values and exclude others."""
    for sign, values in (("", tuple(asked)), ("-", tuple(excluded))):
        if values:
            yield f"{sign}{key}:{','.join(value_text(value, key) for value in values)}"


def as_typed(line: str, cursor: int) -> str:
    """Interpret a line while it is typed: an unfinished value stands for all values that contain it.

    An unfinished status stands for those that begin with it; an unfinished time is left out.
    """
    found = next((term for term in terms(line) if term.start < cursor <= term.end), None)
    if found is None:
        return line
    without = line[: found.start] + line[found.end :]
    if found.key is None:
        # A quote that was just opened, or a minus, would be a mistake if nothing followed.
        return line if found.tokens[0].is_closed and not found.is_negated else without
    key = key_name(found.key)
    piece = next((piece for piece in found.tokens if piece.start <= cursor <= piece.end), None)
    if key is None or piece is None:
        return line
    if not piece.is_closed or not given(found):
        return without
    meant = piece.text if piece.is_quoted else _meant(key, piece.text)
    if meant is None:
        return without
    return line if piece.is_quoted or not piece.text else line[: piece.start] + meant + line[piece.end :]


def settled(line: str, cursor: int) -> str:
    """Complete a line after typing: write out what an unfinished value stood for; mistakes stay."""
    now = datetime.now(UTC)
    return line if parse(line, now).problems else " ".join(_pieces(as_typed(line, cursor)))


def limit_in(line: str, key: KeyName) -> str:
    """A time limit as written in the line, or an empty one."""
    return next((term.tokens[0].text for term in terms(line) if term.key and key_name(term.key) == key), "")


def _pieces(line: str) -> Iterator[str]:
    return (line[term.start : term.end] for term in terms(line))


def _meant(key: KeyName, text: str) -> str | None:
    """The meaning of an unfinished value; None: nothing yet."""
    if key == "status":
        begun = sorted(status for status in KNOWN_STATUSES if status.startswith(text.casefold()))
        return ",".join(begun) or text
    if key in _TIMED:
        return None if parse(f"{key}:{text}", datetime.now(UTC)).problems else text
    return text if "*" in text else f"*{text}*"


def problem_texts(problem: QueryProblem) -> Iterator[SafeText]:
    """The problem with the line and its cure, then shorter: the line underlines the mistake."""
    instead = re.split(_SENTENCES, problem.cure)[0]
    for text in (f"{problem.message} {problem.cure}", f"{problem.message} {instead}", instead):
        yield safe_text(f"✗ {text}", limit=200)


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
