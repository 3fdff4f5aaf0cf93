"""Reading runs from the service: they are stored under the time of their request."""

from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.api.client import Client
from app.api.paging import pages
from app.events import Announce, RunsChanged
from storage.cache import Cache
from storage.records import ACTIVE_STATUSES, FINAL_STATUSES, Repository, Run, RunChanges, RunPage

_NAMED: Final = frozenset({*ACTIVE_STATUSES, *FINAL_STATUSES})
"""The statuses that the spec names."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """The list's parameters (spec 4.2); the dates are inclusive."""

    status: str | None = None
    repository: Repository | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page of runs that was stored."""

    page: RunPage
    changes: RunChanges
    asked_at: datetime
    """When its request began, by our clock."""


@dataclass(frozen=True, slots=True)
class RunReader:
    """Reads lists of runs into the cache."""

    client: Client
    cache: Cache
    announce: Announce
    clock: Callable[[], datetime]
    page_size: int

    async def store(self, runs: Iterable[Run], asked_at: datetime | None = None) -> RunChanges:
        """Store runs from any answer, and ring the doorbell if they changed anything.

        `asked_at` is when the request began, by our clock. None: just now.
        """
        changes = await self.cache.store_runs(tuple(runs), asked_at=asked_at or self.clock())
        # A turn that begins again proves nothing about the status that ended the last one.
        if left := [t.old for t in changes.transitions if t.old and t.old not in _NAMED and t.new != "queued"]:
            await self.cache.learn_left(left)
        if changes:
            self.announce(RunsChanged(changes))
        return changes

    async def read(
        self, query: RunQuery | None = None, *, size: int | None = None, token: str | None = None
    ) -> AsyncGenerator[StoredPage, None]:
        """Yield each page of a list, from the token on, after storing it.

        Raises:
            EndlessListError: The list goes on for ever.
            ApiError: A request failed; pages before it are stored.
        """
        asked = query or RunQuery()
        asked_at = self.clock()

        async def fetch(following: str | None) -> RunPage:
            nonlocal asked_at
            asked_at = self.clock()
            return await self.client.list_runs(
                page_size=size or self.page_size,
                page_token=following or token,
                status=asked.status,
                repository=asked.repository,
                date_from=asked.since,
                date_to=asked.until,
            )

        async for page in pages(fetch):
            yield StoredPage(page, await self.store(page.runs, asked_at), asked_at)
