"""The cache of one profile: its connections, and all writing and reading through them."""

import asyncio
import os
import sqlite3
import uuid
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from storage.cache import coverage as coverage_queries
from storage.cache import following, insights, questions, read_runs, retention, run_sql, schema, stuck, texts
from storage.cache import health as health_queries
from storage.cache import polls as poll_queries
from storage.cache import store_runs as run_writes
from storage.cache import window as windows
from storage.cache.opening import DAMAGE_FIX, SetAside, connect_reader, connect_writer, mark_damaged, prepare
from storage.database import snapshot
from storage.errors import StorageError
from storage.records import (
    LinkState,
    PlatformHealth,
    Run,
    RunDetail,
    RunFilter,
    RunRow,
    RunSort,
    RunWindow,
    WindowRequest,
)
from storage.records.activity import Figures
from storage.records.following import StuckRun
from storage.thread import DatabaseThread, ThreadedStore, reads, reads_texts, writes, writes_now
from storage.values import Clock, utc_now

_NEWEST_FIRST: Final = RunSort()
P = ParamSpec("P")
T = TypeVar("T")
_Job = Callable[[sqlite3.Connection], T]


def _reads_indexed(
    order: str, query: Callable[Concatenate[sqlite3.Connection, P], T]
) -> Callable[Concatenate["Cache", P], Coroutine[Any, Any, T]]:
    """A method that runs the query on the reader once the index of this order exists."""

    async def method(cache: "Cache", /, *args: P.args, **kwargs: P.kwargs) -> T:
        await cache.make_indexes(order)
        return await cache.reader.run(lambda connection: query(connection, *args, **kwargs))

    return method


def _states(
    connection: sqlite3.Connection,
) -> tuple[tuple[PlatformHealth, ...], tuple[LinkState, ...], tuple[StuckRun, ...]]:
    """The code hosts, the links and the stuck runs at one moment: the states that alerts are about."""
    with snapshot(connection):
        return health_queries.platforms(connection), poll_queries.links(connection), stuck.stuck_runs(connection)


class Cache(ThreadedStore):
    """Runs, health, link and coverage of one profile, in one SQLite file.

    Writes happen on one thread, reads on another: a window of rows never waits for a batch.
    """

    def __init__(
        self, writer: DatabaseThread, reader: DatabaseThread, *, clock: Clock, set_aside: SetAside | None
    ) -> None:
        super().__init__(writer, reader, clock)
        self.set_aside = set_aside
        """The unusable cache that was moved aside when this one was opened, or None."""
        self.process = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        """Distinguishes this process from others with the file open."""
        self.opened = 0
        """How many files this object has opened. A place in one file's order means nothing in the next."""
        self._filling: asyncio.Future[None] | None = None
        self._begin()

    def _begin(self) -> None:
        self.opened += 1
        # Cached positions and counts are invalid for another file.
        self._remembered = read_runs.Remembered()
        self.store_runs = run_writes.AnswerQueue(self.writer).store
        self._indexed: set[str] = set()
        """Orders whose index is known to exist."""

    @classmethod
    async def open(cls, path: Path, *, clock: Clock = utc_now) -> Self:
        """Open the cache, and create it if needed; a damaged one, or one of another layout, is set aside."""
        set_aside = await asyncio.to_thread(prepare, path, clock())
        on_damage = partial(mark_damaged, path)
        writer = DatabaseThread(path, "cache-writer", DAMAGE_FIX, on_damage=on_damage)
        reader = DatabaseThread(path, "cache-reader", DAMAGE_FIX, interruptible=True, on_damage=on_damage)
        await writer.start(partial(connect_writer, path))
        try:
            await reader.start(partial(connect_reader, path))
        except BaseException:
            await writer.close()
            raise
        return cls(writer, reader, clock=clock, set_aside=set_aside)

    async def reopen_if_gone(self) -> bool:
        """Continue with a new file if this one was deleted or moved away; return whether it was."""
        path = self.writer.path
        if not self.writer.has_moved:
            return False
        # Writes to the old file would be seen by no other process.
        await asyncio.to_thread(prepare, path, self.clock())
        await self.writer.reopen(partial(connect_writer, path))
        await self.reader.reopen(partial(connect_reader, path))
        self._begin()
        return True

    set_presence = writes(run_writes.set_presence)
    store_summary = writes(run_writes.store_summary)
    drop_oldest = writes(retention.drop_oldest)
    store_health = writes(health_queries.store)
    record_poll = writes(poll_queries.record)
    change_budget = writes(poll_queries.change_budget)
    record_walk = writes(coverage_queries.record_walk)
    extend_coverage = writes(coverage_queries.extend)
    compare_clocks = writes(coverage_queries.compare_clocks)
    forget_coverage = writes(coverage_queries.forget)
    store_place = writes(coverage_queries.store_place)
    note_no_results = writes(coverage_queries.note_no_results)
    store_failure_facts = writes(questions.store)
    mark_final = writes(run_writes.mark_final)
    pause_backfill = writes(coverage_queries.pause_backfill)
    store_progress = writes_now(coverage_queries.store_progress)
    judge_stuck = writes(stuck.judge)
    pin = writes(following.pin)
    unpin = writes(following.unpin)
    save_watermark = writes(following.save_watermark)

    active_runs = reads(read_runs.active_runs)
    lost_counts = reads(read_runs.lost_counts)
    states = reads(_states)
    details = reads(read_runs.details)
    known_statuses = reads_texts("SELECT status FROM statuses ORDER BY status")
    repositories = reads_texts(read_runs.REPOSITORIES)
    branches = reads(read_runs.branches)
    health = reads(health_queries.platforms)
    health_spans = reads(health_queries.spans)
    links = reads(poll_queries.links)
    coverage = reads(coverage_queries.coverage)
    used_bytes = reads(retention.used_bytes)
    history = reads(coverage_queries.history)
    unwalked = reads(coverage_queries.unwalked_runs)
    budget = reads(poll_queries.budget)
    run_clock = reads(poll_queries.run_clock)
    final_statuses = reads(read_runs.final_statuses)
    unsettled_statuses = reads_texts(read_runs.UNSETTLED)
    place = reads(coverage_queries.place)
    neighbour = reads(coverage_queries.neighbour)
    has_no_results = reads(coverage_queries.has_no_results)
    polls = reads(poll_queries.polls)
    questions_due = reads(questions.due)
    questions = reads(questions.of_failed_runs)

    pins = reads(following.pins)
    watermark = reads(following.saved_watermark)
    changes = reads(following.changes)
    events = reads(following.events)
    newest_creation = reads(following.newest_creation)
    past_stuck = reads(stuck.past_stuck)
    stuck_runs = reads(stuck.stuck_runs)
    stuck = reads(stuck.ids)
    outcomes = reads(insights.outcomes)
    key = reads(windows.key_of)
    on_branch = _reads_indexed("branch", read_runs.on_branch)
    agents = _reads_indexed("agent", read_runs.agents)
    repository_figures = _reads_indexed("repository", insights.repositories)
    failed_between = _reads_indexed("updated", insights.failed_between)

    async def window(self, request: WindowRequest) -> RunWindow:
        """The rows around a position, and the current positions of its anchor and cursor."""
        job = partial(windows.window, request=request, remembered=self._remembered)
        grouped = [request.grouping.by] if request.grouping else []
        return await self._read(job, request.condition, request.sort, *grouped)

    async def rows(self, condition: RunFilter, sort: RunSort, *, offset: int, limit: int) -> tuple[RunRow, ...]:
        """The window of at most `limit` runs that starts `offset` runs into the order."""
        job = partial(windows.rows, condition=condition, sort=sort, offset=offset, limit=limit)
        return await self._read(partial(job, remembered=self._remembered), condition, sort)

    async def first_rows(
        self, condition: RunFilter, sort: RunSort, limit: int, patience_s: float
    ) -> tuple[RunRow, ...]:
        """The first `limit` runs of the order, or those found within `patience_s`."""
        job = partial(windows.first_rows, wanted=condition, sort=sort, limit=limit, remembered=self._remembered)
        return await self._read(partial(job, patience_s=patience_s), condition, sort)

    async def keys(self, condition: RunFilter, sort: RunSort, limit: int, *, is_backwards: bool) -> list[run_sql.Key]:
        """The keys of the first `limit` runs of the order, or of the last ones from the end."""
        job = partial(windows.keys, wanted=condition, sort=sort, limit=limit, is_backwards=is_backwards)
        return await self._read(job, condition, sort)

    async def rows_before(self, key: run_sql.Key, condition: RunFilter, sort: RunSort, *, is_after_equal: bool) -> int:
        """The number of runs before a key that may be another cache's, which comes after an equal one or before it."""
        job = partial(windows.rows_before, key=key, wanted=condition, sort=sort, is_after_equal=is_after_equal)
        return await self._read(job, condition, sort)

    async def count(self, condition: RunFilter) -> int:
        if condition.search and (self._filling is None or self._filling.done()):
            # Not before the first rows, and nothing waits for it: for a million runs it takes a second.
            self._filling = asyncio.ensure_future(self._fill())
        return await self._read(partial(read_runs.total, condition=condition, remembered=self._remembered), condition)

    async def counts(self, conditions: Collection[RunFilter]) -> list[int]:
        """The numbers of matching runs at one moment, for filters that an index serves."""
        orders = {order for condition in conditions for order in run_sql.orders_used(condition, _NEWEST_FIRST)}
        remembered = self._remembered

        def read(connection: sqlite3.Connection) -> list[int]:
            return [read_runs.total(connection, condition, remembered) for condition in conditions]

        return await self._read(read, RunFilter(), _NEWEST_FIRST, *orders)

    async def figures(self, since: datetime) -> Figures:
        """The figures of a header at one moment; `since`: from when on failed runs are counted."""
        failed = RunFilter(statuses=("failed",), since=since)
        remembered = self._remembered

        def read(connection: sqlite3.Connection) -> Figures:
            with snapshot(connection):
                lost = read_runs.lost_counts(connection)
                held = read_runs.by_status(connection, RunFilter(), remembered)
                return Figures(
                    poll_queries.links(connection),
                    health_queries.platforms(connection),
                    {status: count - lost.get(status, 0) for status, count in held.items()},
                    read_runs.total(connection, failed, remembered),
                )

        return await self._read(read, failed)

    async def status_counts(self, condition: RunFilter) -> dict[str, int]:
        """The number of runs by status, regardless of the statuses in the filter."""
        job = partial(read_runs.by_status, condition=condition, remembered=self._remembered)
        return await self._read(job, condition)

    async def runs(self, condition: RunFilter, limit: int | None, after: Run | None = None) -> tuple[Run, ...]:
        """The newest `limit` matching runs, or those that follow `after`; with no limit, all of them."""
        return await self._read(partial(read_runs.runs, wanted=condition, limit=limit, after=after), condition)

    async def detail(self, run_id: str) -> RunDetail | None:
        """Everything held about one run; None: it is not held."""
        return (await self.details((run_id,))).get(run_id)

    async def _read(self, job: _Job[T], condition: RunFilter, sort: RunSort = _NEWEST_FIRST, *orders: str) -> T:
        """The job's result, once the indexes for this filter and order exist; without them it is only slower."""
        with suppress(StorageError):
            await self.make_indexes(*run_sql.orders_used(condition, sort), *orders)
        return await self.reader.run(job)

    async def _fill(self) -> None:
        """Make the index for searches; without it the answer is the same, only slower."""
        with suppress(StorageError):
            while await self.write(texts.fill):
                pass

    async def make_indexes(self, *orders: str) -> None:
        for order in (schema.ORDER_INDEXES.keys() & orders) - self._indexed:
            await self.writer.run(partial(schema.make_index, order=order))
            self._indexed.add(order)
