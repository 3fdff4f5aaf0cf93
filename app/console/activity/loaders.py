"""What was written, read from the ledger: what is unknown first, then the newest."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from widgets.activity.formatting import Entry
from widgets.batch import BatchView


@dataclass(frozen=True, slots=True)
class Activity:
    """The newest writes, and how many there are besides."""

    entries: tuple[Entry, ...] = ()
    """Those whose outcome a person has to find out first, each part newest first."""
    matching: int = 0
    """How many the filter lets through."""
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many there are of each kind, whatever the filter says."""
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """How many there are at all."""
        return sum(self.kinds.values())

    @property
    def has_more(self) -> bool:
        """Whether older ones were left out."""
        return self.matching > len(self.entries)


async def read_activity(ledger: Ledger, wanted: ActivityFilter, *, limit: int, before: Activity) -> Activity:
    """What the filter lets through, at most `limit` of it; requests that are the same as `before` are not parsed again.

    What is unknown comes besides, however old it is.

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
    entries = tuple(known.get(action) or Entry(action, about(action)) for action in actions)
    return Activity(entries, writes.matching, kinds, outcomes)


SEARCHED: Final = 20
"""Unknown writes of which it is said what they may have made."""
CANDIDATES: Final = 3
"""Runs that are named for each of them."""


async def with_candidates(found: Activity, reconciliation: Reconciliation) -> Activity:
    """The same, with the runs that the newest unknown writes may have made, as far as the cache knows.

    Raises:
        StorageError: The cache or the ledger cannot be read.
    """
    entries = list(found.entries)
    unknown = [(at, entry.unknown) for at, entry in enumerate(entries)]
    for at, action in [(at, action) for at, action in unknown if action is not None][:SEARCHED]:
        likely = (await reconciliation.cached(action)).candidates[:CANDIDATES]
        entries[at] = replace(
            entries[at], candidates=tuple(safe_text(candidate.line, limit=200) for candidate in likely)
        )
    return replace(found, entries=tuple(entries))


def with_batches(entries: Sequence[Entry], batches: Sequence[BatchView]) -> tuple[Entry | BatchView, ...]:
    """The entries with each batch above the newest of its writes, but below what is unknown."""
    rows: list[Entry | BatchView] = list(entries)
    for batch in batches:
        older = (at for at, row in enumerate(rows) if _is_older(row, batch))
        rows.insert(next(older, len(rows)), batch)
    return tuple(rows)


def _is_older(row: Entry | BatchView, batch: BatchView) -> bool:
    if isinstance(row, BatchView):
        return row.moved_at <= batch.moved_at
    return row.unknown is None and row.source.created_at <= batch.moved_at


def about(action: Action) -> SafeText:
    """What a write was about, in a line."""
    try:
        request = request_of(action)
    except (KeyError, TypeError, ValueError, IndexError):
        # Written by another version: what it was about is then seen in what was sent.
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
