"""Listing runs from the service itself, with any filter; the pages it reads on the way fill the cache."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice

from app.api.client import IdSet
from app.sync.reader import RunQuery
from app.sync.runs import RunSync
from storage.records import Repository, Run, RunFilter


@dataclass(frozen=True, slots=True)
class Listed:
    """What one page of a listing came to."""

    runs: tuple[Run, ...]
    dropped: int
    """Entries on it that had no usable id."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Answers `runs list`: newest first, filtered by the service where it can and here where it cannot."""

    runs: RunSync

    async def pages(self, condition: RunFilter, *, limit: int | None) -> AsyncIterator[Listed]:
        """Runs that pass the filter, page by page, at most `limit` of them (None: all); none comes twice.

        Raises:
            ApiError: A request failed; what came before it is kept.
        """
        asked, most = _askable(condition), self.runs.reader.page_size
        # Where we filter here, most of a page may fall away: small pages would cost many requests.
        size = most if limit is None or asked != condition else max(1, min(most, limit))
        finals = await self.runs.cache.final_statuses()
        met = IdSet()
        count = 0
        walk = await self.runs.begin_walk() if asked == RunFilter() else None
        async for stored in self.runs.reader.read(_query(asked), size=size):
            if walk is not None:
                await self.runs.claim(walk, stored)
            await self.runs.judge_stuck()
            passing = (run for run in stored.page.runs if matches(run, condition, finals) and met.add(run.run_id))
            found = tuple(islice(passing, None if limit is None else limit - count))
            count += len(found)
            yield Listed(found, stored.page.dropped)
            if count == limit:
                return


def _query(asked: RunFilter) -> RunQuery:
    return RunQuery(
        status=next(iter(asked.statuses), None),
        repository=next(map(Repository.parse, asked.repositories), None),
        since=asked.since,
        until=asked.until,
    )


def _askable(condition: RunFilter) -> RunFilter:
    """The part of the filter that the API has parameters for (spec 4.2): one status, one repository, dates."""
    return RunFilter(
        statuses=condition.statuses if len(condition.statuses) == 1 else (),
        repositories=condition.repositories if _is_one_repository(condition.repositories) else (),
        since=condition.since,
        until=condition.until,
    )


def _is_one_repository(labels: tuple[str, ...]) -> bool:
    if len(labels) != 1 or "*" in labels[0]:
        return False
    try:
        Repository.parse(labels[0])
    except ValueError:
        return False
    return True


def matches(run: Run, condition: RunFilter, final_statuses: Collection[str]) -> bool:
    """Whether the run passes every condition; the same answer as the cache's SQL gives."""
    is_right = condition.lets_status_through(run.status, final_statuses)
    return is_right and _places(run, condition) and _dates(run, condition) and _words(run, condition)


def _places(run: Run, condition: RunFilter) -> bool:
    label, branch = run.repository.label, run.branch_name
    return (
        (not condition.repositories or _any(label, condition.repositories))
        and not _any(label, condition.not_repositories)
        and (not condition.branches or _any(branch, condition.branches))
        and not _any(branch, condition.not_branches)
    )


def _any(text: str, patterns: tuple[str, ...]) -> bool:
    # Only `*` is special: a branch may well hold `[` or `?`.
    return any(fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)


def _dates(run: Run, condition: RunFilter) -> bool:
    if condition.since is None and condition.until is None:
        return True
    if run.created_at is None:
        return False
    return (condition.since is None or run.created_at >= condition.since) and (
        condition.until is None or run.created_at <= condition.until
    )


def _words(run: Run, condition: RunFilter) -> bool:
    places = [run.run_id.casefold(), run.repository.label.casefold(), run.branch_name.casefold()]
    return all(any(word in place for place in places) for word in condition.search.casefold().split())
