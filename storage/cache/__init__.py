"""The cache: what was seen of the service, readable at once; if it is lost, it is fetched again."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from storage.cache import coverage, health, polls, read_details, read_runs, store_runs, window
from storage.cache.opening import DAMAGE_CURE, connect_reader, connect_writer, mark_damaged, prepare
from storage.database import data_version
from storage.records import (
    Coverage,
    HealthChange,
    HealthReport,
    HealthSpan,
    LinkState,
    PlatformHealth,
    PollOutcome,
    Presence,
    Run,
    RunChanges,
    RunDetail,
    RunFilter,
    RunRow,
    RunSort,
    RunWindow,
    WindowRequest,
)
from storage.thread import DatabaseThread
from storage.values import Clock, utc_now

if TYPE_CHECKING:
    from storage.cache.following import Following
    from storage.records.activity import ActivityFilter, ActivityPage, PollSpan
    from storage.records.insights import Concurrency, Outcomes, RepositoryFigures


class Cache:
    """Runs, health, link and coverage of one profile, in one SQLite file.

    Writes happen on one thread, reads on another: a window of rows never waits for a batch. Every method may raise
    `StorageError`, whose message names the file and the cure.
    """

    def __init__(
        self, writer: DatabaseThread, reader: DatabaseThread, *, clock: Clock, rebuilt_from: Path | None
    ) -> None:
        self.writer = writer
        """For what lives in the same file: the lease."""
        self.clock = clock
        self.rebuilt_from = rebuilt_from
        """Where a damaged cache was moved when this one was opened in its place. None: it was sound."""
        self._reader = reader
        self._counts = read_runs.Counts()
        self._landmarks = window.Landmarks()

    @classmethod
    async def open(cls, path: Path, *, clock: Clock = utc_now) -> Self:
        """The cache at this path, made or migrated where needed; a damaged one is moved aside and replaced.

        Raises:
            StorageError: It cannot be opened, or a newer Runwarden wrote it.
        """
        rebuilt_from = await asyncio.to_thread(prepare, path, clock())
        start = partial(DatabaseThread.start, path, damage_cure=DAMAGE_CURE, on_damage=partial(mark_damaged, path))
        writer = await start(partial(connect_writer, path), name="cache-writer")
        try:
            reader = await start(partial(connect_reader, path), name="cache-reader", interruptible=True)
        except BaseException:
            await writer.close()
            raise
        return cls(writer, reader, clock=clock, rebuilt_from=rebuilt_from)

    async def close(self) -> None:
        """Finish the jobs under way and close both connections; a second call does nothing."""
        try:
            await self._reader.close()
        finally:
            await self.writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def following(self) -> "Following":
        """What a person follows, and what was reported."""
        # Here and below imported with its first use: the first screen shows none of it.
        from storage.cache.following import Following

        return Following(self.writer, self._reader)

    # writes

    async def store_runs(self, runs: Sequence[Run], *, seen_at: datetime) -> RunChanges:
        """Store these runs in one transaction; what they changed.

        An older `updated_at` never overwrites a newer one; of duplicates in the batch the newest wins. Every run in
        the batch counts as seen, and as current.
        """
        return await self.writer.run(partial(store_runs.store, runs=runs, seen_at=seen_at))

    async def set_presence(self, run_ids: Sequence[str], presence: Presence) -> int:
        """Record whether the service still shows these runs; how many this changed."""
        return await self.writer.run(partial(store_runs.set_presence, run_ids=run_ids, presence=presence))

    async def store_health(self, report: HealthReport, *, at: datetime) -> tuple[HealthChange, ...]:
        """Store an answer to the health request; the platforms whose status it changed.

        A platform that the report omits is no longer connected: a change to None.
        """
        return await self.writer.run(partial(health.store, report=report, at=at))

    async def record_poll(self, outcome: PollOutcome) -> LinkState:
        """Record how a poll went; the state of the link after it."""
        return await self.writer.run(partial(polls.record, outcome=outcome))

    async def extend_coverage(self, start: datetime | None, end: datetime) -> Coverage:
        """Record that every run created from start to end, both inclusive, is held; None: from the very beginning.

        Raises:
            ValueError: The start is after the end.
        """
        return await self.writer.run(partial(coverage.extend, start=start, end=end))

    async def judge_stuck(self) -> frozenset[str]:
        """Flag what is stuck and unflag what no longer is; ids of the runs that this changed.

        Stuck: active for more than 30 minutes and twice the 95th percentile of its repository's finished runs, up to
        when the service last showed it. A flag stays until the turn ends, or its time is clearly below the limit.
        """
        from storage.cache import stuck

        return await self.writer.run(stuck.judge)

    # reads

    async def rows(self, condition: RunFilter, sort: RunSort, *, offset: int, limit: int) -> tuple[RunRow, ...]:
        """The window of at most `limit` runs that starts `offset` runs into the order."""
        return await self._reader.run(
            lambda reader: window.rows(reader, condition, sort, offset, limit, self._counts, self._landmarks)
        )

    async def first_rows(
        self,
        condition: RunFilter,
        sort: RunSort,
        *,
        limit: int,
        patience_s: float,
    ) -> tuple[RunRow, ...]:
        """The first `limit` runs of the order, or those of them that are found within `patience_s`."""
        return await self._reader.run(
            partial(window.first_rows, wanted=condition, sort=sort, limit=limit, patience_s=patience_s)
        )

    async def window(self, request: WindowRequest) -> RunWindow:
        """The rows around a place, and where its anchor and cursor are by now."""
        return await self._reader.run(
            partial(window.window, request=request, counts=self._counts, landmarks=self._landmarks)
        )

    async def count(self, condition: RunFilter) -> int:
        """How many runs the filter lets through."""
        return await self._reader.run(partial(self._counts.total, wanted=condition))

    async def status_counts(self, condition: RunFilter) -> dict[str, int]:
        """How many runs there are of each status, regardless of its own statuses."""
        return await self._reader.run(partial(self._counts.by_status, wanted=condition))

    async def index_of(self, run_id: str, condition: RunFilter, sort: RunSort) -> int | None:
        """The run's place in the order, from 0; None: the filter hides it, or it is not held."""
        return await self._reader.run(partial(window.index_of, run_id=run_id, wanted=condition, sort=sort))

    async def runs(self, condition: RunFilter, sort: RunSort, *, limit: int | None) -> tuple[Run, ...]:
        """The first `limit` runs of the order in full; None: all of them."""
        return await self._reader.run(partial(read_details.runs, wanted=condition, sort=sort, limit=limit))

    async def active_runs(self) -> tuple[Run, ...]:
        """Runs whose status is not known to be final, but for those the service has lost; newest first."""
        return await self._reader.run(read_details.active_runs)

    async def detail(self, run_id: str) -> RunDetail | None:
        """Everything held about one run; None: it is not held."""
        return (await self.details((run_id,))).get(run_id)

    async def details(self, run_ids: Sequence[str]) -> dict[str, RunDetail]:
        """Everything held about these runs, by id; those not held are left out."""
        return await self._reader.run(partial(read_details.details, run_ids=run_ids))

    async def known_statuses(self) -> tuple[str, ...]:
        """Every status that any run was ever seen with, in alphabetical order."""
        return await self._reader.run(read_runs.known_statuses)

    async def repositories(self) -> tuple[str, ...]:
        """Labels of the repositories with runs, the one with the most recent run first, 500 at most."""
        return await self._reader.run(read_runs.repositories)

    async def branches(self, condition: RunFilter) -> tuple[str, ...]:
        """Names of branches of recent runs within the filter, the one with the most recent run first, 500 at most."""
        return await self._reader.run(partial(read_runs.branches, wanted=condition))

    async def on_branch(self, run_id: str, *, each_way: int, most: int) -> tuple[int, tuple[RunRow, ...]]:
        """How many runs there are on a run's branch, counted up to `most`, and those around it, newest first."""
        return await self._reader.run(partial(read_runs.on_branch, run_id=run_id, each_way=each_way, most=most))

    async def stuck(self) -> frozenset[str]:
        """Ids of active runs that take far longer than their repository's runs do, as `judge_stuck` flagged them."""
        from storage.cache import stuck

        return await self._reader.run(stuck.ids)

    async def health(self) -> tuple[PlatformHealth, ...]:
        """What is known of each platform ever connected, by name."""
        return await self._reader.run(health.platforms)

    async def health_spans(self, since: datetime, *, longest_gap: timedelta) -> tuple[HealthSpan, ...]:
        """Each platform's stretches of one status that end after `since`, oldest first; see `health.spans`."""
        return await self._reader.run(partial(health.spans, since=since, longest_gap=longest_gap))

    async def links(self) -> tuple[LinkState, ...]:
        """The state of the link for each subject, never polled ones included."""
        return await self._reader.run(polls.links)

    async def coverage(self) -> Coverage:
        """Which part of the service's history is held completely, up to the last poll."""
        return await self._reader.run(coverage.coverage)

    async def covered_until(self) -> datetime | None:
        """The end of the newest range that is held completely; None: there is none."""
        return await self._reader.run(coverage.covered_until)

    async def polls(self, wanted: "ActivityFilter", *, limit: int) -> "ActivityPage[PollSpan]":
        """How the newest polls went that the filter lets through, alike ones in a row as one."""
        return await self._reader.run(partial(polls.polls, wanted=wanted, limit=limit))

    async def outcomes(self, edges: Sequence[datetime]) -> "tuple[Outcomes, ...]":
        """What became of the runs created between each edge and the next."""
        from storage.cache import insights

        return await self._reader.run(partial(insights.outcomes, edges=edges))

    async def concurrency(self, edges: Sequence[datetime]) -> "tuple[Concurrency, ...]":
        """How many runs were under way between each edge and the next, on average; the last edge is now."""
        from storage.cache import insights

        return await self._reader.run(partial(insights.concurrency, edges=edges))

    async def repository_figures(self, since: datetime) -> "tuple[RepositoryFigures, ...]":
        """Each repository's runs created since then, in numbers; the one with the most runs first, 500 at most."""
        from storage.cache import insights

        return await self._reader.run(partial(insights.repositories, since=since))

    async def data_version(self) -> int:
        """A number that differs after another process wrote to the cache; our own writes leave it as it is."""
        # Asked of the writer: on the reader's connection our own writes would count as foreign.
        return await self.writer.run(data_version)
