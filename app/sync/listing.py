"""Listing runs from the service itself, with any filter; what passes by on the way fills the cache."""

from dataclasses import dataclass

from app.api.client import Client
from app.api.pages import pages
from app.sync.head_scan import HeadScan
from app.sync.matching import matches
from app.sync.runs import RunSync
from storage.records import Repository, Run, RunFilter, RunPage


@dataclass(frozen=True, slots=True)
class Listing:
    """Answers `runs list`: newest first, filtered by the service where it can and here where it cannot."""

    client: Client
    runs: RunSync
    page_size: int

    async def fetch(self, wanted: RunFilter, *, limit: int | None) -> tuple[Run, ...]:
        """Runs that pass the filter, at most `limit` of them (None: all).

        Raises:
            ApiError: A request failed; what came before it is kept.
        """
        asked = _askable(wanted)
        # Where we filter here, most of a page may fall away: small pages would cost many requests.
        size = self.page_size if limit is None or asked != wanted else max(1, min(self.page_size, limit))
        found: dict[str, Run] = {}
        walk = HeadScan(since=wanted.since)
        async for page in pages(lambda token: self._page(asked, token, size)):
            await self.runs.store(page.runs)
            walk.step(page)
            found |= {run.run_id: run for run in page.runs if matches(run, wanted)}
            if limit is not None and len(found) >= limit:
                break
        await self.runs.judge_stuck()
        if asked == RunFilter(since=wanted.since):
            await walk.keep(self.runs.cache, self.runs.clock())
        return tuple(found.values())[:limit]

    async def _page(self, asked: RunFilter, token: str | None, size: int) -> RunPage:
        return await self.client.list_runs(
            page_size=size,
            page_token=token,
            status=next(iter(asked.statuses), None),
            repository=next(map(Repository.parse, asked.repositories), None),
            date_from=asked.since,
            date_to=asked.until,
        )


def _askable(wanted: RunFilter) -> RunFilter:
    """The part of the filter that the API itself has parameters for (spec 4.2): one status, one repository, dates."""
    return RunFilter(
        statuses=wanted.statuses if len(wanted.statuses) == 1 else (),
        repositories=wanted.repositories if _is_one_repository(wanted.repositories) else (),
        since=wanted.since,
        until=wanted.until,
    )


def _is_one_repository(labels: tuple[str, ...]) -> bool:
    if len(labels) != 1 or "*" in labels[0]:
        return False
    try:
        Repository.parse(labels[0])
    except ValueError:
        return False
    return True
