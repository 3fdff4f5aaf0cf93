"""What happened, read from the ledger and from the poll log, and put into one order."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import assert_never

from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
    request_of,
)
from app.text import SafeText, safe_text
from storage.cache import Cache
from storage.ledger import Ledger
from storage.records import Action
from storage.records.activity import ActivityFilter
from widgets.activity.formatting import Entry


@dataclass(frozen=True, slots=True)
class Activity:
    """The newest of what happened, and how much there is besides."""

    entries: tuple[Entry, ...] = ()
    """Newest first."""
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


async def read_activity(
    cache: Cache, ledger: Ledger, wanted: ActivityFilter, *, limit: int, before: Activity
) -> Activity:
    """What the filter lets through, at most `limit` of it; requests that are the same as `before` are not parsed again.

    Raises:
        StorageError: The cache or the ledger cannot be read.
    """
    known = {entry.source: entry for entry in before.entries}
    writes = await ledger.journal(wanted, limit=limit)
    polls = await cache.polls(wanted, limit=limit)
    sources = (
        [known.get(action) or Entry(action, about(action)) for action in writes.newest],
        [known.get(stretch) or Entry(stretch, SafeText()) for stretch in polls.newest],
    )
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for tally in (writes.tally, polls.tally):
        for (kind, outcome), count in tally.items():
            kinds[kind] += count
            outcomes[outcome] += count
    entries = islice(merge(*sources, key=lambda entry: entry.at, reverse=True), limit)
    return Activity(tuple(entries), writes.matching + polls.matching, kinds, outcomes)


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
        case OnboardProject():
            return request.project_path or "", "" if request.project_id is None else str(request.project_id)
        case _:
            assert_never(request)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
