"""Walks: reading the list of runs page by page, and the ranges that this proves complete (spec 4.2)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.api.client import Client
from app.api.errors import ApiError, EndlessListError
from app.api.requests import ALL_RUNS, RunQuery
from app.api.timestamps import names_offset
from app.engine.events import Announce, RunsChanged
from storage.cache.cache import Cache
from storage.records import CANCELLED, CoverageRange, Run, RunChanges, RunPage
from storage.records.results import FailureFacts, Unavailable

ReadFailureFacts = Callable[[], Awaitable[FailureFacts | Unavailable]]
"""Reads which runs were cancelled and what agents ask; raises `ApiError`."""
MICROSECOND: Final = timedelta(microseconds=1)
SECOND: Final = timedelta(seconds=1)
"""Tolerance for times: a service may round them to whole seconds, and list a run shortly after its creation."""
KNOWN_IN_A_ROW: Final = 3
"""After this many known and unchanged runs in a row, the following runs count as known as well."""
MAX_PAGES_WITHOUT_NEW: Final = 2
"""Pages in a row without a new run. One is normal: runs move while a list is read."""
MAX_UNREADABLE_PAGES: Final = 20
"""The same limit if the last page had only entries without a usable id."""


class StoredPage(Struct, frozen=True):
    """A page of runs that was stored."""

    page: RunPage
    changes: RunChanges


class RunReader(Struct, frozen=True):
    """Reads lists of runs into the cache, each dated by its request."""

    client: Client
    cache: Cache
    announce: Announce
    clock: Callable[[], datetime]
    page_size: int
    failure_facts: ReadFailureFacts | None = None

    async def store(
        self,
        runs: Iterable[Run],
        cancelled: Collection[str] = (),
        asked_at: datetime | None = None,
        *,
        is_of_write: bool = False,
        news_from: datetime | None = None,
    ) -> RunChanges:
        """Store runs from any answer, and announce what they changed.

        `asked_at` is when the request began, by our clock, or None for now. `cancelled`: runs known to be cancelled.
        `news_from`: if this is the first answer, runs created until then, by the service's clock, are history. None:
        the time of the request, or of the runs' last change.
        """
        at = asked_at or self.clock()
        runs = tuple(runs)
        if news_from is None:
            heard = self.client.budget.heard_ahead
            present = at + (self.client.budget.clock_ahead if heard is None else heard)
            times = [time for run in runs for time in (run.created_at, run.updated_at) if time is not None]
            news_from = max((present, *times))
        changes = await self.cache.store_runs(runs, at, cancelled, is_of_write=is_of_write, news_from=news_from)
        if changes:
            self.announce(RunsChanged(changes))
        return changes

    async def page(self, query: RunQuery, token: str | None = None, size: int | None = None) -> StoredPage:
        asked_at = self.clock()
        page = await self.client.list_runs(query, page_size=size or self.page_size, page_token=token)
        # Runs created after the newest listed run are news; if the list is empty, all later runs are.
        news_from = None
        if query == ALL_RUNS and token is None:
            is_empty = not page.runs and not page.dropped
            created = [run.created_at for run in page.runs if run.created_at is not None]
            news_from = max(created, default=datetime.min.replace(tzinfo=UTC) if is_empty else None)
        cancelled = await self._find_cancelled(page.runs)
        return StoredPage(page, await self.store(page.runs, cancelled, asked_at, news_from=news_from))

    async def _find_cancelled(self, runs: Sequence[Run]) -> Collection[str]:
        """Check for cancellations before storing a failure, so that a cancelled run is never reported as failed."""
        failed = {run.run_id: run.updated_at for run in runs if run.status == "failed"}
        if self.failure_facts is None or not failed:
            return ()
        cached = [detail.run for detail in (await self.cache.details(list(failed))).values()]
        # A service updates a cancelled run once more when its agent has stopped.
        news = [run for run in cached if (run.status, run.updated_at) != (CANCELLED, failed.get(run.run_id))]
        if all(run.status == "failed" for run in news):
            return ()
        with suppress(ApiError):
            if isinstance(reported := await self.failure_facts(), FailureFacts):
                return reported.cancelled
        return ()

    async def read(
        self, query: RunQuery = ALL_RUNS, *, size: int | None = None, token: str | None = None
    ) -> AsyncGenerator[StoredPage, None]:
        """Store and yield each page of a list, from the token on; `repeated` has the runs that an earlier page had.

        `EndlessListError`: a token came twice, an empty page promises another, or two pages brought only known runs.
        """
        tokens: set[str] = set()
        known: set[str] = set()
        without_new = 0
        while True:
            stored = await self.page(query, token, size)
            page = stored.page
            ids = {run.run_id for run in page.runs}
            new = ids - known
            known |= new
            yield replace(stored, page=replace(page, repeated=frozenset(ids - new)))
            token = page.next_token
            if token is None:
                return
            if token in tokens:
                raise EndlessListError("The service repeated a page token; the list would never end.")
            if not page.runs and not page.dropped:
                raise EndlessListError("The service sent an empty page and promised another; the list would never end.")
            without_new = 0 if new else without_new + 1
            if without_new >= (MAX_PAGES_WITHOUT_NEW if page.runs else MAX_UNREADABLE_PAGES):
                raise EndlessListError(f"The service sent {without_new} pages of no new run; the list would never end.")
            tokens.add(token)


def dates_are_creations(runs: Sequence[Run], since: datetime, until: datetime) -> bool:
    """Whether the answer for this window proves that the service compares its dates with the creation of runs.

    All its runs were created within the window, and at least one was last changed outside of it.
    """
    return are_within(runs, since, until) and any(
        run.updated_at is not None and not since - SECOND <= run.updated_at <= until + SECOND for run in runs
    )


def are_within(runs: Sequence[Run], since: datetime | None, until: datetime) -> bool:
    return all(
        run.created_at is not None and run.created_at <= until and (since is None or run.created_at >= since - SECOND)
        for run in runs
    )


class _Created(Struct):
    created_at: object = None


_CREATED: Final = msgspec.json.Decoder(_Created)


@dataclass(slots=True)
class Order:
    """Checks that a list is in order, newest first: only then does it prove that none of its runs is missing.

    Creation times are readable and name their offset, no run comes later than an older one or twice, and the total
    does not shrink from page to page, as it does when runs are deleted and later ones slip onto pages already read.
    """

    bottom: datetime | None = None
    """The creation of the last run."""
    total: int | None = None
    """The total according to the last page, or None if no page was read or it had no total."""
    is_odd: bool = False
    pages: int = 0
    _changed: datetime | None = None
    """The last change of the last run."""
    _is_by_creation: bool = False
    """Whether the last changes do not descend: the list is not ordered by them."""
    _tied: set[str] = field(default_factory=set)
    """The runs that were created at the time `bottom`."""

    def begin_page(self, page: RunPage) -> None:
        """Compare the total with that of the page before."""
        if self.pages and (self.total is None or page.total_count is None or page.total_count < self.total):
            self.is_odd = True
        self.total = page.total_count
        self.pages += 1

    def add(self, run: Run) -> None:
        created, changed = run.created_at, run.updated_at
        if self.is_odd:
            return
        if created is None or changed is None or not names_offset(_CREATED.decode(run.raw_json).created_at):
            self.is_odd = True
            return
        if self.bottom is None or created < self.bottom:
            self._tied.clear()
        self.is_odd = (self.bottom is not None and created > self.bottom) or run.run_id in self._tied
        self._tied.add(run.run_id)
        self._is_by_creation |= self._changed is not None and changed > self._changed
        self.bottom, self._changed = created, changed

    def read(self, page: RunPage) -> None:
        self.begin_page(page)
        for run in page.runs:
            self.add(run)

    @property
    def floor(self) -> datetime | None:
        """The creation, inclusive, down to which every run was shown, or None if the order proves nothing.

        The list may as well be ordered by the last change, until one is out of order: then every run created after
        the last change shown is known to be shown, since a run does not change before it is created.
        """
        if self.is_odd or self.bottom is None or self._changed is None:
            return None
        # Runs of the same instant as the last one may be on the next page.
        return (self.bottom if self._is_by_creation else max(self.bottom, self._changed + SECOND)) + MICROSECOND


@dataclass(slots=True)
class Walk:
    """A walk from the newest run downwards, page by page, until it meets known runs."""

    as_of: datetime
    """When the first page was requested, by our clock."""
    known: CoverageRange | None
    """The newest complete range before the walk began."""
    order: Order = field(default_factory=Order)
    top: datetime | None = None
    """The creation of the first run."""
    total: int | None = None
    """The total according to the first page."""
    token: str | None = None
    runs: int = 0
    dropped: int = 0
    """Entries that had no usable id."""
    ended: bool = False
    joined: bool = False
    """Whether the walk met the newest complete range."""
    met: bool = False
    """Whether the walk met runs that an earlier walk had read, even without a complete range."""
    refuted: bool = False
    """Whether most of a page's runs were new, although they lie in a range that was recorded as complete."""
    _joining: int = 0
    _meeting: int = 0

    def step(self, stored: StoredPage, unwalked: Collection[str] = ()) -> None:
        """Add the next page; `unwalked`: those of its runs that came into the cache since a walk was last recorded."""
        page = stored.page
        new = set(stored.changes.new)
        changed = new | {*stored.changes.updated, *(moved.run_id for moved in stored.changes.transitions)}
        if not self.order.pages:
            self.total = page.total_count
        self.token = page.next_token
        self.ended = page.next_token is None
        self.runs += len(page.runs)
        self.dropped += page.dropped
        if self.known is not None:
            missed = sum(run.run_id in new and self.known.holds(run.created_at) for run in page.runs)
            self.refuted = missed >= KNOWN_IN_A_ROW and 2 * missed > len(page.runs)
        self.order.begin_page(page)
        for run in page.runs:
            self.top = self.top or run.created_at
            self.order.add(run)
            is_same = run.run_id not in changed and run.run_id not in page.repeated
            self._meeting = self._meeting + 1 if is_same and run.run_id not in unwalked else 0
            self._joining = self._joining + 1 if is_same and self.known and self.known.holds(run.created_at) else 0
            self.met |= self._meeting >= KNOWN_IN_A_ROW
            self.joined |= self._joining >= KNOWN_IN_A_ROW and not self.order.is_odd and not self.refuted

    @property
    def is_odd(self) -> bool:
        """Whether the list is out of order above the known runs."""
        return self.order.is_odd and not self.joined

    def claim(self) -> CoverageRange | None:
        """The range that is complete as of the walk's start; None if the walk proves nothing."""
        if self.ended and self.total is not None and self.runs + self.dropped < self.total:
            # The service has runs that this walk did not show.
            self.order.is_odd = True
        # More runs may still be created in the newest second, so the range ends before it.
        ends = [self.known.end if self.known else None, self.top - SECOND if self.top else None]
        end = max((end for end in ends if end is not None), default=None)
        if self.ended and not self.order.is_odd:
            return CoverageRange(None, end)
        if self.joined and self.known is not None:
            return CoverageRange(self.known.start, end)
        floor = self.order.floor
        if floor is None or self.top is None or floor > self.top - SECOND:
            return None
        return CoverageRange(floor, self.top - SECOND)
