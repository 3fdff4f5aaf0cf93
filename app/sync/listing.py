"""Lists of runs from the service itself, with any filter; the pages read on the way fill the cache."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from app.api.budget import Priority
from app.api.errors import EndlessListError, RejectedError
from app.api.requests import ALL_RUNS, RunQuery
from app.sync.runs import RunSync
from app.sync.walk import SECOND, Order, Walk
from storage.records import CANCELLED, Repository, Run, RunFilter, RunPage


class FilterIgnoredError(Exception):
    """The service cannot apply the filter: it has no parameter for it, or also shows other runs."""


class Listing(Struct, frozen=True):
    """Answers `runs list`: newest first, filtered by the service if possible and here otherwise."""

    runs: RunSync

    async def pages(self, condition: RunFilter, *, limit: int | None) -> AsyncIterator[RunPage]:
        """Runs that match the filter, page by page, at most `limit` (all if it is None), each once."""
        query = await self._query(condition)
        most = self.runs.reader.page_size
        # What the service applies: dates are requested more widely, and filtered here.
        statuses = (query.status,) if query.status else ()
        applied = RunFilter(statuses=statuses, repositories=condition.repositories if query.repository else ())
        # A filter applied here may drop most of a page: small pages would cost many requests.
        size = most if limit is None or applied != condition else max(1, min(most, limit))
        finals = await self.runs.cache.final_statuses()
        count = 0
        order = Order()
        walk = None
        if query == ALL_RUNS:
            walk = Walk(self.runs.clock(), next(iter((await self.runs.cache.coverage()).ranges), None))
        async for stored in self.runs.reader.read(query, size=size):
            if walk is not None:
                await self.runs.claim(walk, stored)
            else:
                await self.runs.learn_clock()
            await self.runs.judge_stuck()
            if {"failed", CANCELLED} & {*condition.statuses, *condition.not_statuses}:
                await self.runs.learn_of_failures()
            details = await self.runs.cache.details([run.run_id for run in stored.page.runs if run.status == "failed"])
            cancelled = {run_id for run_id, detail in details.items() if detail.run.status == CANCELLED}
            runs = [replace(run, status=CANCELLED) if run.run_id in cancelled else run for run in stored.page.runs]
            once = {run.run_id: run for run in runs if run.run_id not in stored.page.repeated}
            passing = (run for run in once.values() if matches(run, condition, finals))
            chosen = tuple(islice(passing, None if limit is None else limit - count))
            count += len(chosen)
            yield replace(stored.page, runs=chosen)
            order.read(stored.page)
            if count == limit or _is_before(order, condition.since):
                return

    async def older(self, condition: RunFilter, before: datetime | None) -> AsyncGenerator[int, None]:
        """Fetch matching runs, page by page, with the service's filter; this completes no range.

        Yields after each page how many of its runs match and were not held. Those created after `before` are held.
        `FilterIgnoredError`: only the whole list has them.
        """
        bounds = [bound for bound in (condition.until, before) if bound is not None]
        filters = replace(condition, until=min(bounds, default=None))
        reader = self.runs.reader
        reader = replace(reader, client=reader.client.at(Priority.ASKED))
        finals = await self.runs.cache.final_statuses()
        for status in condition.statuses or ("",):
            query = await self._query(replace(filters, statuses=(status,) if status else ()))
            order = Order()
            if query.status is None and query.repository is None:
                raise FilterIgnoredError
            try:
                async for stored in reader.read(query):
                    others = sum(
                        (query.status is not None and run.status != query.status)
                        or (query.repository is not None and run.repository.label != query.repository.label)
                        for run in stored.page.runs
                    )
                    # A single run may have changed in between.
                    if 2 * others > len(stored.page.runs):
                        raise FilterIgnoredError
                    new = set(stored.changes.new)
                    yield sum(run.run_id in new and matches(run, condition, finals) for run in stored.page.runs)
                    order.read(stored.page)
                    if _is_before(order, condition.since):
                        break
            except (RejectedError, EndlessListError) as error:
                raise FilterIgnoredError from error

    async def _query(self, condition: RunFilter) -> RunQuery:
        """The part of the filter that the API has parameters for (spec 4.2); it excludes no matching run.

        Only a service that filters by creation is asked for an end: one that filters by the last change would leave
        out runs that changed since. The start is as good with either, since no run changes before it is created.
        """
        since, until = condition.since, condition.until
        if until is not None and not await self.runs.filters_by_creation():
            until = None
        only = condition.statuses[0] if len(condition.statuses) == 1 else None
        repository: Repository | None = None
        labels = condition.repositories
        if len(labels) == 1 and "*" not in labels[0]:
            with suppress(ValueError):
                repository = Repository.parse(labels[0])
        return RunQuery(
            # The service calls a cancelled run failed, unless it has this status itself.
            status=None if only == CANCELLED else only,
            repository=repository,
            since=_shift(since, -SECOND),
            until=_shift(until, SECOND),
        )


def _is_before(order: Order, since: datetime | None) -> bool:
    return since is not None and order.floor is not None and order.floor < since


def _shift(moment: datetime | None, by: timedelta) -> datetime | None:
    try:
        return None if moment is None else moment + by
    except OverflowError:
        return None


def matches(run: Run, condition: RunFilter, final_statuses: Collection[str]) -> bool:
    """Whether the run matches the whole filter; the same answer as the cache's SQL gives."""
    label = run.repository.label
    branch = run.branch_name
    created_at = run.created_at
    texts = [run.run_id.casefold(), label.casefold(), branch.casefold()]
    return (
        condition.lets_status_through(run.status, final_statuses)
        and (not condition.repositories or _matches_any(label, condition.repositories))
        and not _matches_any(label, condition.not_repositories)
        and (not condition.branches or _matches_any(branch, condition.branches))
        and not _matches_any(branch, condition.not_branches)
        and (condition.since is None or (created_at is not None and created_at >= condition.since))
        and (condition.until is None or (created_at is not None and created_at <= condition.until))
        and all(any(word in text for text in texts) for word in condition.search.casefold().split())
    )


def _matches_any(text: str, patterns: tuple[str, ...]) -> bool:
    # Only `*` is special: a branch may well contain `[` or `?`.
    return any(fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)
