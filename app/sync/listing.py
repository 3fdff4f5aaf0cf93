"""Listing runs from the service itself, with any filter; what passes by on the way fills the cache."""

from dataclasses import dataclass

from app.api.client import Client
from app.api.pages import pages
from app.sync.matching import matches
from app.sync.runs import RunSync
from app.sync.walk import Walk
from storage.records import Repository, Run, RunFilter


@dataclass(frozen=True, slots=True)
class Listing:
    """Answers `runs list`: newest first, filtered by the service where it can and here where it cannot."""

    client: Client
    runs: RunSync
    page_size: int

    async def fetch(self, wanted: RunFilter, *, limit: int | None) -> tuple[Run, ...]:
        """Runs that pass the filter, at most `limit` of them (None: all).

        Raises:
            ApiError: A request failed; the poll is remembered as failed.
        """
        found: dict[str, Run] = {}
        status = wanted.statuses[0] if len(wanted.statuses) == 1 else None
        repository = _exact_repository(wanted)
        walk = Walk(since=wanted.since)
        whole = status is None and repository is None and wanted.until is None
        size = self.page_size if limit is None else max(1, min(self.page_size, limit))
        async for page in pages(
            lambda token: self.client.list_runs(
                page_size=size,
                page_token=token,
                status=status,
                repository=repository,
                date_from=wanted.since,
                date_to=wanted.until,
            )
        ):
            await self.runs.store(page.runs)
            walk.step(page)
            found |= {run.run_id: run for run in page.runs if matches(run, wanted)}
            if limit is not None and len(found) >= limit:
                break
        if whole:
            await walk.keep(self.runs.cache, self.runs.clock())
        return tuple(found.values())[:limit]


def _exact_repository(wanted: RunFilter) -> Repository | None:
    if len(wanted.repositories) != 1 or "*" in wanted.repositories[0]:
        return None
    try:
        return Repository.parse(wanted.repositories[0])
    except ValueError:
        return None
