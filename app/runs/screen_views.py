"""The query of the table: a view, which is a named line of the query language, and the order.

Changes keep the rest of a line as it was typed.
"""

import asyncio
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec.json
from msgspec import Struct, field
from msgspec.structs import replace

from app.console.feeds import CoalescedTask
from app.console.session import FIX_TOAST_S, GoToTab
from app.engine.atomic_file import alone, replacing
from app.engine.text import SafeText, closest, safe_text
from app.profiles import CACHE_FILE, Profile, Settings, ViewSettings, data_folder
from app.runs.query import (
    TAKES_ONE,
    KeyName,
    Query,
    QueryProblem,
    key_name,
    list_terms,
    parse,
    terms,
    unknown_status,
    values_of,
)
from storage import RunwardenError
from storage.records import FIELD_BY_NAME, KNOWN_STATUSES, RunFilter, RunSort
from storage.records.query import Grouping
from storage.records.run import DEFAULT_PLATFORM
from widgets.runs.columns import COLUMN_KEYS, DEFAULT_COLUMNS, ColumnChoice

if TYPE_CHECKING:
    from app.console.base import BaseScreen
    from storage.cache.first_paint import FirstPaint


FILE: Final = "console.json"
VERSION: Final = 1
MAX_VIEWS: Final = 50
MAX_TERMINALS: Final = 20
EARLIER_COLUMNS: Final = ("status", "repository", "branch", "started", "took", "run")
"""The original default columns, which older files store even for users who chose none."""


class PreferencesError(RunwardenError):
    """Preferences cannot be saved; the message names the file and the fix. The console works without."""


class LastQuery(Struct, frozen=True):
    """The view and order that one console showed last."""

    view: str = ""
    """Empty, or the name of a deleted view: the first one."""
    sort: RunSort = field(default_factory=RunSort)
    group: str = ""
    """The grouping as written; empty: no groups."""


class Preferences(LastQuery, frozen=True):
    """All preferences, and the newest console's last query."""

    views: tuple[ViewSettings, ...] = ()
    columns: ColumnChoice = field(default_factory=ColumnChoice)
    detail: bool = True
    """Whether the run under the cursor is shown next to the table or below it."""
    last: dict[str, LastQuery] = field(default_factory=dict)
    """The last query of each terminal's console."""
    version: int = VERSION

    def shown(self, query: "TableQuery") -> "Preferences":
        """Remember what the console of this terminal shows."""
        last = LastQuery(query.view.name, query.sort, str(query.grouping or ""))
        terminal = this_terminal()
        others = [(where, each) for where, each in self.last.items() if where != terminal]
        newest = dict([*others, (terminal, last)][-MAX_TERMINALS:])
        return replace(self, view=last.view, sort=last.sort, group=last.group, last=newest)

    def with_view(self, view: ViewSettings, index: int = MAX_VIEWS) -> "Preferences":
        """Insert a saved view at this index or at the end, instead of one with the same name."""
        others = self.without_view(view.name).views
        return replace(self, views=(*others[:index], view, *others[index:])[-MAX_VIEWS:])

    def without_view(self, name: str) -> "Preferences":
        return replace(self, views=tuple(other for other in self.views if other.name.casefold() != name.casefold()))


PreferenceChange = Callable[[Preferences], Preferences]


class FileVersion(Struct):
    """Reads the version that every format of the file has."""

    version: int


class PreferencesFile(Struct, frozen=True):
    """One file, readable only for its owner."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, profile: Profile) -> "PreferencesFile":
        return cls(data_folder(settings, profile) / FILE)

    def read(self) -> Preferences:
        """Read the preferences; the defaults if the file is missing, damaged, or written by a newer version."""
        try:
            preferences = msgspec.json.decode(self.path.read_bytes(), type=Preferences)
        except (OSError, ValueError):
            # Starting with defaults is better than not starting.
            return Preferences()
        sorts = [query.sort for query in (preferences, *preferences.last.values())]
        sorts += [view.sort for view in preferences.views if view.sort is not None]
        if preferences.version != VERSION or any(sort.column not in FIELD_BY_NAME for sort in sorts):
            return Preferences()
        columns = ColumnChoice(tuple(dict.fromkeys(key for key in preferences.columns.shown if key in COLUMN_KEYS)))
        for key, width in preferences.columns.widths.items():
            columns = columns.with_width(key, width) if key in COLUMN_KEYS else columns
        is_usual = columns.shown in {(), EARLIER_COLUMNS}
        return replace(preferences, columns=replace(columns, shown=DEFAULT_COLUMNS) if is_usual else columns)

    def change(self, change: PreferenceChange) -> Preferences:
        """Apply a change to the file's current content, so that another console's changes are kept.

        Raises:
            PreferencesError: The file cannot be written, or a newer version wrote it.
        """
        try:
            with alone(self.path.parent):
                with suppress(OSError, ValueError):
                    if msgspec.json.decode(self.path.read_bytes(), type=FileVersion).version > VERSION:
                        raise PreferencesError(f"A newer version wrote {self.path}: upgrade, or move it away.")
                before = self.read()
                after = change(before)
                if after != before:
                    with replacing(self.path) as file:
                        file.write(msgspec.json.format(msgspec.json.encode(after)).decode())
                return after
        except OSError as error:
            raise PreferencesError(
                f"Views and columns cannot be saved ({error.strerror or error}) and last until you quit: "
                f"see that {self.path} can be written."
            ) from error


class PreferencesWriter:
    """The current preferences; changes are written in the background, one after the other."""

    def __init__(self, screen: "BaseScreen") -> None:
        """Read the file; the screen runs the writing, and its session shows why saving fails, once until it works."""
        self._session = screen.session
        self._file = PreferencesFile.of(self._session.settings, self._session.profile)
        self.now = self._file.read()
        self._has_failed = False
        self._pending: list[tuple[PreferenceChange, str]] = []
        self._writer = CoalescedTask(self._write, screen.run_worker)

    def change(self, change: PreferenceChange, note: str = "") -> None:
        """Change the preferences at once and save them soon; `note` is shown once they are saved."""
        before = self.now
        self.now = change(self.now)
        self._has_failed = self._has_failed and not note
        if note or self.now != before:
            self._pending.append((change, note))
            self._writer.ask()

    async def _write(self) -> None:
        pending = self._pending
        self._pending = []
        try:
            await asyncio.to_thread(
                self._file.change, lambda known: reduce(lambda so_far, change: change[0](so_far), pending, known)
            )
        except PreferencesError as error:
            # The next change also saves these, when the file may be writable again.
            self._pending = [*((change, "") for change, _ in pending), *self._pending]
            if not self._has_failed:
                self._has_failed = True
                self._session.notify(str(error), severity="warning", timeout=FIX_TOAST_S)
        else:
            self._has_failed = False
            for note in filter(None, (note for _, note in pending)):
                self._session.notify(note)


def replace_terms(line: str, keys: Collection[KeyName], new: Iterable[str]) -> str:
    """Replace all terms with one of these keys; without any, add at the end."""
    parts: list[str] = []
    first: int | None = None
    for term in terms(line):
        if term.key is not None and key_name(term.key) in keys:
            first = len(parts) if first is None else first
        else:
            parts.append(line[term.start : term.end])
    index = len(parts) if first is None else first
    return " ".join((*parts[:index], *new, *parts[index:]))


def as_typed(line: str, cursor: int) -> str:
    """Interpret a line while it is typed: an unfinished value means all values that contain it.

    An unfinished status means those that begin with it; an unfinished time is left out.
    """
    if (current := next((term for term in terms(line) if term.start < cursor <= term.end), None)) is None:
        return line
    without = line[: current.start] + line[current.end :]
    if current.key is None:
        # A quote that was just opened, or a minus, would be a mistake if nothing followed.
        if current.tokens[0].is_closed and not current.is_negated:
            return line
        return without
    key = key_name(current.key)
    piece = next((piece for piece in current.tokens if piece.start <= cursor <= piece.end), None)
    if key is None or piece is None:
        return line
    if not piece.is_closed or not values_of(current):
        return without
    pattern = piece.text
    if key == "status":
        begun = sorted(status for status in KNOWN_STATUSES if status.startswith(pattern.casefold()))
        pattern = ",".join(begun) or pattern
    elif key in TAKES_ONE:
        if parse(f"{key}:{pattern}", datetime.now(UTC)).problems and not piece.is_quoted:
            return without
    elif "*" not in pattern:
        pattern = f"*{pattern}*"
    if piece.is_quoted or not piece.text:
        return line
    return line[: piece.start] + pattern + line[piece.end :]


def limit_in(line: str, key: KeyName) -> str:
    """A time limit as written in the line; may be empty."""
    return next((term.tokens[0].text for term in terms(line) if term.key and key_name(term.key) == key), "")


def problem_texts(problem: QueryProblem) -> Iterator[SafeText]:
    """The problem with its fix, then shorter texts of it, since the line underlines the mistake."""
    instead = re.split(r"(?<=[.?]) ", problem.fix)[0]
    for text in (f"{problem.message} {problem.fix}", f"{problem.message} {instead}", instead):
        yield safe_text(f"✗ {text}", limit=200)


ViewOrigin = Literal["built in", "configured", "saved"]


class View(ViewSettings, frozen=True):
    """A view with its origin."""

    origin: ViewOrigin = "built in"
    empty: str = "No run matches this view"
    """Shown if no run matches."""


ALL: Final = View("All", empty="Reading the runs…")
BUILT_IN: Final = (
    ALL,
    View("Active", "is:active", empty="Nothing is running"),
    View("Failed 24h", "status:failed since:24h", empty="No run failed in the last 24 hours"),
    View("Stuck", "is:stuck", empty="No run is stuck"),
)


def views_of(configured: Iterable[ViewSettings], saved: Iterable[ViewSettings]) -> tuple[View, ...]:
    """All views, in the order of their tabs; of two with the same name the earlier one counts."""
    by_name = {view.name.casefold(): view for view in BUILT_IN}
    origins: tuple[tuple[ViewOrigin, Iterable[ViewSettings]], ...] = (("configured", configured), ("saved", saved))
    for origin, views in origins:
        for view in views:
            by_name.setdefault(view.name.casefold(), View(view.name, view.query, view.sort, view.group, origin))
    return tuple(by_name.values())


class TableQuery(Struct, frozen=True):
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
        return self.line.split() != self.view.query.split()

    def query(self, now: datetime) -> Query:
        """Parse the line; a problem in the term that is being typed is not reported yet."""
        line = self.line if self.cursor is None else as_typed(self.line, self.cursor)
        return parse(line, now)

    def condition(self, now: datetime) -> RunFilter:
        """The filter as of now: `the last 24 hours` moves with the clock."""
        return self.query(now).filter

    def problems(self, now: datetime, known: Collection[str] | None) -> Sequence[QueryProblem]:
        """The mistakes in the line, and statuses that are not `known`; None: the known ones were not read yet.

        While the line is typed, those outside of the term under the cursor.
        """
        query = self.query(now)
        if query.problems or known is None or self.cursor is not None:
            return query.problems
        # An excluded status can be unknown, unless it is a typo.
        excluded = (status for status in query.filter.not_statuses if closest(status.casefold(), known))
        unknown = [status for status in (*query.filter.statuses, *excluded) if status not in known]
        return [QueryProblem(0, 0, *unknown_status(status, known)) for status in unknown]


def view_named(views: Iterable[View], name: str) -> View:
    """The view of that name, or all runs."""
    return next((view for view in views if view.name.casefold() == name.casefold()), ALL)


def first_query(settings: Settings, preferences: Preferences) -> TableQuery:
    """The last view and order of this terminal; a typed line is not restored."""
    last = preferences.last.get(this_terminal(), preferences)
    view = view_named(views_of(settings.views, preferences.views), last.view)
    return TableQuery.of(view, last.sort, Grouping.read(last.group))


def this_terminal() -> str:
    """The name of this terminal or multiplexer pane, to distinguish it from others; empty if it has none."""
    for name in ("TMUX_PANE", "STY", "KITTY_WINDOW_ID", "WEZTERM_PANE", "TERM_SESSION_ID", "WINDOWID"):
        if value := os.environ.get(name):
            # GNU screen numbers its windows.
            return f"{name}={value}" + (f" WINDOW={os.environ.get('WINDOW', '')}" if name == "STY" else "")
    with suppress(OSError, ValueError):
        return os.ttyname(sys.__stdin__.fileno() if sys.__stdin__ else -1)
    return ""


def first_picture(settings: Settings, profile: Profile, now: datetime) -> "FirstPaint | None":
    """The cached rows of the first query; None: the cache cannot be read as it is, or not at once."""
    from storage.cache.first_paint import peek

    query = first_query(settings, PreferencesFile.of(settings, profile).read())
    # More rows than any terminal has lines.
    return peek(data_folder(settings, profile) / CACHE_FILE, query.condition(now), query.sort, limit=120)


def of_platform(platform: str) -> RunFilter:
    """The runs of a platform, which is part of their repositories' labels."""
    if platform == DEFAULT_PLATFORM:
        return RunFilter(not_repositories=("*:*",))
    return RunFilter(repositories=(f"{platform}:*",))


def runs_lead(condition: RunFilter, since: datetime | None = None, before: datetime | None = None) -> GoToTab:
    """A link to these runs, created from `since` on and before `before`; None: no limit."""
    terms = [
        *list_terms("status", condition.statuses, condition.not_statuses),
        *list_terms("repo", condition.repositories, condition.not_repositories),
        *([f"since:{_time(since)}"] if since is not None else []),
        # `until` would include the limit itself.
        *([f"-since:{_time(before, up=True)}"] if before is not None else []),
    ]
    return GoToTab("runs", " ".join(terms))


def _time(at: datetime, *, up: bool = False) -> str:
    """Format as local time with offset; as a date where it is midnight UTC."""
    whole = at.replace(microsecond=0) + timedelta(seconds=1 if up and at.microsecond else 0)
    utc = whole.astimezone(UTC)
    if utc.time() == time.min:
        return f"{utc:%Y-%m-%d}"
    return whole.astimezone().isoformat(timespec="seconds" if whole.second else "minutes").replace("+00:00", "Z")
