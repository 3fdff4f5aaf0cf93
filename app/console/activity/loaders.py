"""Writes read from the ledger: unknown ones first, then the newest."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, assert_never

from app.api.requests import (
    CancelRun,
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
    request_of,
)
from app.console.activity.query import ActivityQuery
from app.console.messages import FIRST_UNKNOWN
from app.console.session.coalesced_task import CoalescedTask, Start
from app.reconcile.reconciliation import Reconciliation
from app.text import SafeText, safe_text
from storage.ledger import Ledger
from storage.records import Action
from storage.records.activity import ActivityFilter
from widgets.activity.formatting import ActivityEntry
from widgets.batch import BatchView

if TYPE_CHECKING:
    from app.engine import Engine

PAGE: Final = 300
"""Entries read at first, and again whenever the last one is reached."""
SEARCHED: Final = 20
"""Unknown writes for which candidates are searched."""
CANDIDATES: Final = 3
"""Candidates shown for each unknown write."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The writes that match the query, up to a limit, and the counts of all writes."""

    entries: tuple[ActivityEntry, ...] = ()
    """Unknown outcomes first, then the others; the newest first among each."""
    matching: int = 0
    """How many match the filter."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """All writes by kind, whatever the filter."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """All writes by outcome, whatever the filter."""

    @property
    def total(self) -> int:
        """The number of all writes."""
        return sum(self.kinds.values())

    @property
    def has_more(self) -> bool:
        """Whether more writes match than were read."""
        return self.matching > len(self.entries)


@dataclass(frozen=True, slots=True)
class ReadingRequest:
    """What the next reading is for."""

    query: ActivityQuery = field(default_factory=ActivityQuery)
    key: str = ""
    """The write to move the cursor to; empty: the cursor stays."""


class ActivityLoader:
    """Reads the entries that match the query whenever it is asked."""

    def __init__(self, engine: "Engine", start: Start, read: Callable[[str], None]) -> None:
        """Start empty; `read` is called after each reading with the key to move the cursor to; empty: it stays."""
        self.found: Activity | None = None
        """The entries as read last; None: they were not read yet."""
        self._engine = engine
        self._announce = read
        self._request = ReadingRequest()
        self._limit = PAGE
        self._reader = CoalescedTask(self._read, start)
        self.ask = self._reader.ask

    @property
    def query(self) -> ActivityQuery:
        """The current query."""
        return self._request.query

    @property
    def total(self) -> int:
        """The number of all writes; 0 before the first reading."""
        return 0 if self.found is None else self.found.total

    @property
    def first_unknown(self) -> ActivityEntry | None:
        """The first write of unknown outcome."""
        entries = () if self.found is None else self.found.entries
        return next((entry for entry in entries if entry.unknown is not None), None)

    def show(self, query: ActivityQuery) -> None:
        """Read with another query."""
        if query != self.query:
            self._request, self._limit = replace(self._request, query=query), PAGE
            self.ask()

    def go(self, query: ActivityQuery, key: str) -> None:
        """Read with this query and move the cursor to a write."""
        self._request = ReadingRequest(query, key)
        self.ask()

    def read_more(self) -> None:
        """Read another page, if there is one."""
        if self.found is not None and self.found.has_more:
            self._limit += PAGE
            self.ask()

    async def _read(self) -> None:
        request, engine = self._request, self._engine
        condition = request.query.condition(engine.clock())
        found = await read_activity(engine.ledger, condition, limit=self._limit, before=self.found or Activity())
        found = await with_candidates(found, engine.reconciliation)
        if request is not self._request:
            return  # Another query was set in between: it is read next.
        self.found, self._request = found, ReadingRequest(request.query)
        first = self.first_unknown
        self._announce(first.key if request.key == FIRST_UNKNOWN and first is not None else request.key)


async def read_activity(ledger: Ledger, wanted: ActivityFilter, *, limit: int, before: Activity) -> Activity:
    """Read at most `limit` entries that match the filter, with all unknown ones that match, however old they are.

    Entries of `before` are used again, so that their requests are not parsed twice.

    Raises:
        StorageError: The ledger cannot be read.
    """
    known = {entry.source: entry for entry in before.entries}
    writes = await ledger.journal(wanted, limit=limit)
    unknown: tuple[Action, ...] = ()
    if not wanted.outcomes or "unknown" in wanted.outcomes:
        unknown = (await ledger.journal(replace(wanted, outcomes=("unknown",), is_open=True), limit=limit)).newest
    pinned = {action.action_id for action in unknown}
    actions = (*unknown, *(action for action in writes.newest if action.action_id not in pinned))
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for (kind, outcome), count in writes.tally.items():
        kinds[kind] += count
        outcomes[outcome] += count
    entries = tuple(known.get(action) or ActivityEntry(action, about(action)) for action in actions)
    return Activity(entries, writes.matching, kinds, outcomes)


async def with_candidates(found: Activity, reconciliation: Reconciliation) -> Activity:
    """Add the runs that the newest unknown writes may have made, as far as the cache knows.

    Raises:
        StorageError: The cache or the ledger cannot be read.
    """
    entries = list(found.entries)
    unknown = [(index, entry.unknown) for index, entry in enumerate(entries) if entry.unknown is not None]
    for index, action in unknown[:SEARCHED]:
        likely = (await reconciliation.cached(action)).candidates[:CANDIDATES]
        lines = tuple(safe_text(candidate.line, limit=200) for candidate in likely)
        entries[index] = replace(entries[index], candidates=lines)
    return replace(found, entries=tuple(entries))


def with_batches(
    entries: Sequence[ActivityEntry], batches: Sequence[BatchView]
) -> tuple[ActivityEntry | BatchView, ...]:
    """Insert each batch above the newest of its writes, but below unknown outcomes."""
    rows: list[ActivityEntry | BatchView] = list(entries)
    for batch in batches:
        older = (at for at, row in enumerate(rows) if _is_older(row, batch))
        rows.insert(next(older, len(rows)), batch)
    return tuple(rows)


def _is_older(row: ActivityEntry | BatchView, batch: BatchView) -> bool:
    if isinstance(row, BatchView):
        return row.moved_at <= batch.moved_at
    return row.unknown is None and row.source.created_at <= batch.moved_at


def about(action: Action) -> SafeText:
    """The subject of a write, in a line."""
    try:
        request = request_of(action)
    except (KeyError, TypeError, ValueError, IndexError):
        # Another version of Runwarden wrote the request; the ledger still has its subject.
        return safe_text(action.subject)
    return safe_text("  ".join(filter(None, _parts(request))), limit=300)


def _parts(request: WriteRequest) -> tuple[str, ...]:
    match request:
        case StartRun():
            return request.repository.label, request.branch_name or "", _first_line(request.instructions)
        case ContinueRun():
            return request.run_id, _first_line(request.instructions)
        case StartAgent():
            return request.name, request.repository, request.branch_name or ""
        case CreateOrganization():
            return request.email, request.offer_code or ""
        case CancelRun():
            return (request.run_id,)
        case OnboardProject():
            return request.project_path or "", "" if request.project_id is None else str(request.project_id)
        case _:
            assert_never(request)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
