"""What Activity shows: its views and filters, the writes that match them, and their words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

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
from app.reconcile.reconciliation import Reconciliation
from app.text import SafeText, safe_text
from storage.ledger import Ledger
from storage.records import Action
from storage.records.activity import ActivityFilter
from widgets.activity import ActivityEntry, outcome_badge, what
from widgets.badges import Badge
from widgets.batch import BatchView
from widgets.clickable import Chip
from widgets.frame.notice import Notice

SEARCHED: Final = 20
"""Unknown writes for which candidates are searched."""
CANDIDATES: Final = 3
"""Candidates shown for each unknown write."""


@dataclass(frozen=True, slots=True)
class ActivityView:
    """A named filter."""

    title: str
    condition: ActivityFilter
    empty: str
    """The text for an empty list."""


VIEWS: Final = (
    ActivityView("Writes", ActivityFilter(), "Nothing was written from here yet"),
    ActivityView("Open", ActivityFilter(is_open=True), "Every outcome is known"),
)
SINCE: Final[Mapping[str, timedelta | None]] = {
    "any": None,
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


@dataclass(frozen=True, slots=True)
class ActivityQuery:
    """A view, and the filters that narrow it."""

    view: int = 0
    """Index into `VIEWS`."""
    kinds: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    search: str = ""
    since: str = "any"
    """One of `SINCE`."""

    @property
    def is_narrowed(self) -> bool:
        """Whether escape has a filter to clear."""
        return self != ActivityQuery(view=self.view)

    def condition(self, now: datetime) -> ActivityFilter:
        """The filter as of now."""
        base, back = VIEWS[self.view].condition, SINCE[self.since]
        return ActivityFilter(
            kinds=self.kinds or base.kinds,
            outcomes=self.outcomes,
            search=self.search,
            since=None if back is None else now - back,
            is_open=base.is_open,
        )


def kind_badge(kind: str) -> Badge:
    """The badge of a kind in lists."""
    return Badge("·", what(kind), "plain")


def views(query: ActivityQuery) -> tuple[Chip, ...]:
    """The chips of the views, with the current one marked."""
    return tuple(
        Chip(
            f"show_view({index})",
            safe_text(f"[{view.title}]" if index == query.view else view.title),
            index == query.view,
        )
        for index, view in enumerate(VIEWS)
    )


def filters(query: ActivityQuery) -> tuple[Chip, ...]:
    """The chips of all filters, set or not."""
    kinds = _few(tuple(what(kind) for kind in query.kinds))
    outcomes = _few(tuple(outcome_badge(outcome).word for outcome in query.outcomes))
    return (
        Chip("kinds", safe_text(f"what {kinds} ▾"), bool(query.kinds)),
        Chip("outcomes", safe_text(f"outcome {outcomes} ▾"), bool(query.outcomes)),
        Chip("since", safe_text(f"since {query.since} ▾"), query.since != "any"),
    )


def _few(names: tuple[str, ...]) -> str:
    if not names:
        return "any"
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def nothing(query: ActivityQuery, held: int) -> Notice:
    """The reason for an empty list."""
    if query.is_narrowed and held:
        return Notice("∅", "No write matches", (f"{held:,} writes are here; esc shows them again.",))
    if held:
        return Notice("✓", VIEWS[query.view].empty, (f"{held:,} writes are here; [ and ] change the view.",))
    lines = ("Every write is entered here before it is sent,", "with its outcome, whichever process it was.")
    return Notice("○", VIEWS[query.view].empty, lines, "plain")


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

    @property
    def first_unknown(self) -> ActivityEntry | None:
        """The first write of unknown outcome."""
        return next((entry for entry in self.entries if entry.unknown is not None), None)


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
