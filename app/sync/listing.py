"""Listing runs from the service itself, with any filter; the pages it reads on the way fill the cache."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from app.api.client import Client, pages
from app.sync.runs import HeadScan, RunSync
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
    """The part of the filter that the API has parameters for (spec 4.2): one status, one repository, dates."""
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


def matches(run: Run, wanted: RunFilter) -> bool:
    """Whether the run passes every condition; the same answer as the cache's SQL gives."""
    return _status(run, wanted) and _places(run, wanted) and _dates(run, wanted) and _words(run, wanted)


def _status(run: Run, wanted: RunFilter) -> bool:
    if wanted.active and run.is_final:
        return False
    if wanted.statuses and run.status not in wanted.statuses:
        return False
    return run.status not in wanted.not_statuses


def _places(run: Run, wanted: RunFilter) -> bool:
    label, branch = run.repository.label, run.branch_name
    return (
        (not wanted.repositories or _any(label, wanted.repositories))
        and not _any(label, wanted.not_repositories)
        and (not wanted.branches or _any(branch, wanted.branches))
        and not _any(branch, wanted.not_branches)
    )


def _any(text: str, patterns: tuple[str, ...]) -> bool:
    # Only `*` is special: a branch may well hold `[` or `?`.
    return any(fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)


def _dates(run: Run, wanted: RunFilter) -> bool:
    if wanted.since is None and wanted.until is None:
        return True
    if run.created_at is None:
        return False
    return (wanted.since is None or run.created_at >= wanted.since) and (
        wanted.until is None or run.created_at <= wanted.until
    )


def _words(run: Run, wanted: RunFilter) -> bool:
    places = [run.run_id.casefold(), run.repository.label.casefold(), run.branch_name.casefold()]
    return all(any(word in place for place in places) for word in wanted.search.casefold().split())
