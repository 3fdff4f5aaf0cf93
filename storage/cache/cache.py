"""The cache of one profile: its connections, and all writing and reading through them."""

import asyncio
import os
import uuid
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from storage.cache import backfill as backfill_queries
from storage.cache import coverage as coverage_queries
from storage.cache import health as health_queries
from storage.cache import polls as poll_queries
from storage.cache import read_runs, retention, statuses
from storage.cache import store_runs as run_writes
from storage.cache.opening import DAMAGE_CURE, SetAside, connect_reader, connect_writer, mark_damaged, prepare
from storage.cache.window import WindowReader
from storage.database import data_version
from storage.private_file import file_identity
from storage.records import Run, RunDetail, RunFilter, RunRow
from storage.thread import DatabaseThread, reads, writes
from storage.values import Clock, utc_now

if TYPE_CHECKING:
    from storage.cache.following import FollowStore
    from storage.records.insights import Concurrency, FailedRuns, Outcomes, RepositoryFigures


class Cache:
    """Runs, health, link and coverage of one profile, in one SQLite file.

    Writes happen on one thread, reads on another: a window of rows never waits for a batch. Every method may raise
    `StorageError`, whose message names the file and the cure.
    """

    def __init__(
        self, writer: DatabaseThread, reader: DatabaseThread, *, clock: Clock, set_aside: SetAside | None
    ) -> None:
        self.writer = writer
        self.clock = clock
        self.set_aside = set_aside
        """The unusable cache that was moved aside when this one was opened. None: there was none."""
        self.reader = reader
        self.process = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        """Distinguishes this process from others with the file open."""
        self.opened = 0
        """How many files this object has opened. A place in one file's order means nothing in the next."""
        self.store_runs = run_writes.AnswerQueue(writer).store
        self._begin()

    def _begin(self) -> None:
        self.opened += 1
        self._file = file_identity(self.writer.path)
        # What is known of places and counts is worthless in another file.
        windows = self._windows = WindowReader(self.writer, self.reader)
        self.window, self.rows, self.first_rows = windows.window, windows.rows, windows.first_rows
        self.index_of, self.count, self.status_counts = windows.index_of, windows.count, windows.status_counts

    @classmethod
    async def open(cls, path: Path, *, clock: Clock = utc_now) -> Self:
        """Open the cache, and create it if needed; a damaged one, or one of another layout, is set aside.

        Raises:
            StorageError: It cannot be opened, or a Runwarden of another version has it open.
        """
        set_aside = await asyncio.to_thread(prepare, path, clock())
        start = partial(DatabaseThread.start, path, damage_cure=DAMAGE_CURE, on_damage=partial(mark_damaged, path))
        writer = await start(partial(connect_writer, path), name="cache-writer")
        try:
            reader = await start(partial(connect_reader, path), name="cache-reader", interruptible=True)
        except BaseException:
            await writer.close()
            raise
        return cls(writer, reader, clock=clock, set_aside=set_aside)

    async def reopen_if_gone(self) -> bool:
        """Continue with a new file if this one was deleted or moved away; return whether it was.

        Raises:
            StorageError: It is gone, and no new one can be opened.
        """
        path = self.writer.path
        if file_identity(path) == self._file:
            return False
        # Writes to the old file would be seen by no other process.
        await asyncio.to_thread(prepare, path, self.clock())
        await self.writer.reopen(partial(connect_writer, path))
        await self.reader.reopen(partial(connect_reader, path))
        self._begin()
        return True

    async def close(self) -> None:
        """Finish the jobs under way and close both connections; a second call does nothing."""
        try:
            await self.reader.close()
        finally:
            await self.writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @cached_property
    def following(self) -> "FollowStore":
        """Followed runs, and what was reported of them."""
        # Imported at first use, here and below, since the first screen does not need it.
        from storage.cache.following import FollowStore

        return FollowStore(self.writer, self.reader)

    # writes

    set_presence = writes(run_writes.set_presence)
    drop_oldest = writes(retention.drop_oldest)
    store_health = writes(health_queries.store)
    record_poll = writes(poll_queries.record)
    record_walk = writes(coverage_queries.record_walk)
    extend_coverage = writes(coverage_queries.extend)
    compare_clocks = writes(coverage_queries.compare_clocks)
    forget_coverage = writes(coverage_queries.forget)
    leave_place = writes(coverage_queries.leave_place)
    note_no_results = writes(coverage_queries.note_no_results)
    mark_final = writes(statuses.mark_final)
    pause_backfill = writes(backfill_queries.pause)
    store_progress = writes(backfill_queries.store_progress)

    async def judge_stuck(self) -> frozenset[str]:
        """Flag stuck runs and unflag others; return the ids of changed runs.

        Stuck: active for more than 30 minutes and twice the 95th percentile of its repository's finished runs, up to
        when the service last showed it. A flag stays until the turn ends, or its time is clearly below the limit.
        """
        from storage.cache import stuck

        return await self.writer.run(stuck.judge)

    # reads

    active_runs = reads(read_runs.active_runs)
    details = reads(read_runs.details)
    known_statuses = reads(read_runs.known_statuses)
    repositories = reads(read_runs.repositories)
    branches = reads(read_runs.branches)
    health = reads(health_queries.platforms)
    health_spans = reads(health_queries.spans)
    links = reads(poll_queries.links)
    coverage = reads(coverage_queries.coverage)
    used_bytes = reads(retention.used_bytes)
    dropped_until = reads(retention.dropped_until)
    is_unread = reads(coverage_queries.is_unread)
    run_clock = reads(poll_queries.run_clock)
    run_clock_ahead = reads(poll_queries.run_clock_ahead)
    final_statuses = reads(statuses.final_statuses)
    unsettled_statuses = reads(statuses.unsettled_statuses)
    backfill_paused = reads(backfill_queries.is_paused)
    backfill_progress = reads(backfill_queries.progress)
    place = reads(coverage_queries.place)
    neighbour = reads(coverage_queries.neighbour)
    has_no_results = reads(coverage_queries.has_no_results)
    polls = reads(poll_queries.polls)

    async def runs(self, condition: RunFilter, limit: int | None, after: Run | None = None) -> tuple[Run, ...]:
        """The newest `limit` matching runs, or those that follow `after`; with no limit, all of them."""
        await self._windows.prepare(condition)
        return await self.reader.run(partial(read_runs.runs, wanted=condition, limit=limit, after=after))

    async def on_branch(self, run_id: str, each_way: int, most: int) -> tuple[int, tuple[RunRow, ...]]:
        """The number of runs on a run's branch, at most `most`, and those around it, newest first."""
        await self._windows.index("branch")
        return await self.reader.run(partial(read_runs.on_branch, run_id=run_id, each_way=each_way, most=most))

    async def detail(self, run_id: str) -> RunDetail | None:
        """Everything held about one run; None: it is not held."""
        return (await self.details((run_id,))).get(run_id)

    async def stuck(self) -> frozenset[str]:
        """Ids of active runs that take far longer than their repository's runs do, as `judge_stuck` flagged them."""
        from storage.cache import stuck

        return await self.reader.run(stuck.ids)

    async def outcomes(self, edges: Sequence[datetime]) -> "tuple[Outcomes, ...]":
        """The outcomes of the runs created between each edge and the next."""
        from storage.cache import insights

        return await self.reader.run(partial(insights.outcomes, edges=edges))

    async def concurrency(self, edges: Sequence[datetime]) -> "tuple[Concurrency, ...]":
        """The average number of runs under way between each edge and the next; the last edge is now."""
        from storage.cache import insights

        await self._windows.index("updated")
        return await self.reader.run(partial(insights.concurrency, edges=edges))

    async def repository_figures(self, since: datetime) -> "tuple[RepositoryFigures, ...]":
        """The figures of each repository's runs created since then; the one with the most runs first, 500 at most."""
        from storage.cache import insights

        await self._windows.index("repository")
        return await self.reader.run(partial(insights.repositories, since=since))

    async def failed_between(self, wanted: RunFilter, start: datetime, end: datetime) -> "FailedRuns":
        """Those of these runs that failed between two times."""
        from storage.cache import insights

        await self._windows.index("updated")
        return await self.reader.run(partial(insights.failed_between, wanted=wanted, start=start, end=end))

    async def data_version(self) -> int:
        """A number that changes when another process writes to the cache; our own writes do not change it."""
        # The writer is asked, because the reader's connection would count our own writes, too.
        return await self.writer.run(data_version)
