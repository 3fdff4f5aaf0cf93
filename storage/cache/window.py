"""Windows of rows: found from the nearer end or from a landmark, a run whose place is known from an earlier read."""

import sqlite3
import time
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from storage.cache.coverage import coverage
from storage.cache.read_runs import COLUMNS, Counts, count, row_of
from storage.cache.run_sql import Where, before, both, key_columns, onwards, order_by, orders_used, where
from storage.cache.schema import ORDER_INDEXES, make_index
from storage.database import data_version, snapshot
from storage.errors import StorageError
from storage.records import CoverageGap, RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from storage.values import from_us, to_us

_KEPT: Final = 64
"""How many landmarks are kept for one filter and order: enough for a minute of paging."""
Key = tuple[str | int, ...]
"""The values that determine a run's place in the order."""


@dataclass(frozen=True, slots=True)
class Landmark:
    """A run and how many come before it."""

    offset: int
    key: Key


class Landmarks:
    """Runs whose places are known until the cache changes; for one connection, on its thread."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[tuple[RunFilter, RunSort], list[Landmark]] = {}

    def nearest(
        self, connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, *, within: int
    ) -> Landmark | None:
        """The landmark nearest to a place; None: none is less than `within` rows away."""
        self._forget_stale(connection)
        known = self._known.get((condition, sort), ())
        nearest = min(known, key=lambda landmark: abs(landmark.offset - offset), default=None)
        return nearest if nearest is not None and abs(nearest.offset - offset) < within else None

    def note(
        self, connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, run_id: str
    ) -> None:
        """Note the place of a run that was read just now."""
        columns = ", ".join(key_columns(sort))
        key = connection.execute(f"SELECT {columns} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if key is None:
            return
        # Landmarks are kept for one filter at a time; going back to another one costs one count.
        known = self._known.get((condition, sort), [])[-_KEPT:]
        self._known = {(condition, sort): [*(mark for mark in known if mark.offset != offset), Landmark(offset, key)]}

    def _forget_stale(self, connection: sqlite3.Connection) -> None:
        version = data_version(connection)
        if version != self._version:
            self._known.clear()
            self._version = version


if TYPE_CHECKING:
    from storage.cache.groups import Groups
    from storage.thread import DatabaseThread

GAPS: Final = 9
"""How many gaps between runs are shown as rows: each needs a count."""
NEAR: Final = 2000
"""Up to this offset, skipping rows from the front costs less than counting them."""

_STEPS: Final = 20_000
"""SQLite virtual machine steps between two checks of the clock."""


_NEWEST_FIRST: Final = RunSort()


class WindowReader:
    """Reads windows, counts and places of runs from one open cache file; makes the index that an order needs."""

    def __init__(self, writer: "DatabaseThread", reader: "DatabaseThread") -> None:
        self._writer = writer
        self._reader = reader
        self._counts = Counts()
        self._landmarks = Landmarks()
        self._groups: Groups | None = None
        self._indexed: set[str] = set()
        """Orders whose index is known to exist."""

    async def window(self, request: WindowRequest) -> RunWindow:
        """The rows around a place, and the current places of its anchor and cursor."""
        await self.prepare(request.condition, request.sort)
        find = partial(window, request=request, counts=self._counts, landmarks=self._landmarks)
        if request.grouping is not None:
            # Imported at first use: the first screen needs no groups.
            from storage.cache import groups

            with suppress(StorageError):
                await self.index(request.grouping.by)
            self._groups = self._groups or groups.Groups()
            find = partial(
                groups.window, request=request, counts=self._counts, landmarks=self._landmarks, groups=self._groups
            )
        return await self._reader.run(find)

    async def rows(self, condition: RunFilter, sort: RunSort, *, offset: int, limit: int) -> tuple[RunRow, ...]:
        """The window of at most `limit` runs that starts `offset` runs into the order."""
        await self.prepare(condition, sort)
        return await self._reader.run(
            lambda connection: rows(connection, condition, sort, offset, limit, self._counts, self._landmarks)
        )

    async def first_rows(
        self, condition: RunFilter, sort: RunSort, limit: int, patience_s: float
    ) -> tuple[RunRow, ...]:
        """The first `limit` runs of the order, or those found within `patience_s`."""
        await self.prepare(condition, sort)
        find = partial(first_rows, wanted=condition, sort=sort, limit=limit, patience_s=patience_s)
        return await self._reader.run(find)

    async def index_of(self, run_id: str, condition: RunFilter, sort: RunSort) -> int | None:
        """The run's place in the order, from 0; None: the filter hides it, or it is not held."""
        await self.prepare(condition, sort)
        return await self._reader.run(partial(index_of, run_id=run_id, wanted=condition, sort=sort))

    async def count(self, condition: RunFilter) -> int:
        """The number of matching runs."""
        await self.prepare(condition)
        return await self._reader.run(partial(self._counts.total, condition=condition))

    async def status_counts(self, condition: RunFilter) -> dict[str, int]:
        """The number of runs by status, regardless of the filter's own statuses."""
        await self.prepare(condition)
        return await self._reader.run(partial(self._counts.by_status, condition=condition))

    async def prepare(self, condition: RunFilter, sort: RunSort = _NEWEST_FIRST) -> None:
        """Make the indexes that serve this filter and order."""
        # Without them the answer is the same, only slower.
        with suppress(StorageError):
            await self.index(*orders_used(condition, sort))

    async def index(self, *orders: str) -> None:
        """Make the indexes of these orders.

        Raises:
            StorageError: The cache cannot be written.
        """
        for order in (ORDER_INDEXES.keys() & orders) - self._indexed:
            await self._writer.run(partial(make_index, order=order))
            self._indexed.add(order)


def window(connection: sqlite3.Connection, request: WindowRequest, counts: Counts, landmarks: Landmarks) -> RunWindow:
    """The rows around a place; a window beyond the end of the order ends there."""
    condition, sort, limit = request.condition, request.sort, request.limit
    with snapshot(connection):
        runs = counts.total(connection, condition)
        gaps = _gaps(connection, condition, sort, runs, counts)
        shift, cursor = _moves(connection, request, [runs_above for runs_above, _ in gaps])
        total = runs + len(gaps)
        offset = max(0, min(request.offset + shift, total - limit))
        numbered = tuple((above + number, gap) for number, (above, gap) in enumerate(gaps))
        first = offset - sum(number < offset for number, _ in numbered)
        found = rows(connection, condition, sort, first, limit, counts, landmarks)
    return RunWindow(total, offset, found, shift, cursor, numbered)


def _gaps(
    connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, runs: int, counts: Counts
) -> list[tuple[int, CoverageGap]]:
    """The newest gaps between two runs, in their order, each with how many runs are above it."""
    if sort.column != "started" or condition.is_scan:
        return []
    found = []
    for gap in condition.gaps_in(coverage(connection))[:GAPS]:
        if gap.after is not None and gap.before is not None:
            since = from_us(_hole(connection, to_us(gap.after), to_us(gap.before)))
            newer = counts.total(connection, replace(condition, since=max(since, condition.since or since)))
            found.append((newer if sort.descending else runs - newer, gap))
    return sorted((each for each in found if 0 < each[0] < runs), key=itemgetter(0))


def _hole(connection: sqlite3.Connection, after_us: int, before_us: int) -> int:
    """When the longest time without a held run ends; a gap has few such runs, at its ends or found because active."""
    (end_us,) = connection.execute(
        "SELECT at_us FROM (SELECT at_us, at_us - lag(at_us, 1, :after) OVER (ORDER BY at_us) AS empty_us FROM"
        " (SELECT created_us AS at_us FROM runs WHERE created_us > :after AND created_us < :before"
        " UNION ALL VALUES (:before))) ORDER BY empty_us DESC, at_us DESC LIMIT 1",
        {"after": after_us, "before": before_us},
    ).fetchone()
    return int(end_us)


def _moves(
    connection: sqlite3.Connection, request: WindowRequest, runs_above_gaps: list[int]
) -> tuple[int, int | None]:
    """By how many rows the anchor moved down, and the cursor's current place."""

    def index(run_id: str | None) -> int | None:
        found = None if run_id is None else index_of(connection, run_id, request.condition, request.sort)
        return None if found is None else found + bisect_right(runs_above_gaps, found)

    if not request.is_fresh:
        return 0, None if request.cursor_id is None else request.cursor_index
    anchor = index(request.anchor_id)
    cursor = anchor if request.cursor_id == request.anchor_id else index(request.cursor_id)
    return 0 if anchor is None else anchor - request.anchor_index, cursor


def rows(
    connection: sqlite3.Connection,
    condition: RunFilter,
    sort: RunSort,
    offset: int,
    limit: int,
    counts: Counts,
    landmarks: Landmarks | None = None,
) -> tuple[RunRow, ...]:
    """The window of at most `limit` runs that starts `offset` runs into the order."""
    offset, limit = max(0, offset), max(0, limit)
    with snapshot(connection):
        total = counts.total(connection, condition) if offset > NEAR else 0
        to_end = total - offset - limit
        if offset <= NEAR or landmarks is None or to_end <= NEAR:
            return _from_nearer_end(connection, condition, sort, offset, limit, total)
        mark = landmarks.nearest(connection, condition, sort, offset, within=min(offset, total - offset))
        found = _from_landmark(connection, condition, sort, offset, limit, mark)
        if found is None:
            found = _from_nearer_end(connection, condition, sort, offset, limit, total)
        if found:
            landmarks.note(connection, condition, sort, offset, found[0].run_id)
        return found


def _from_nearer_end(
    connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, limit: int, total: int
) -> tuple[RunRow, ...]:
    if offset <= NEAR or offset < total // 2:
        return page(connection, where(condition), order_by(sort), offset, limit)
    # Beyond the middle, rows are read backwards from the end.
    limit = min(limit, total - offset)
    if limit <= 0:
        return ()
    backwards = page(connection, where(condition), order_by(sort, backwards=True), total - offset - limit, limit)
    return tuple(reversed(backwards))


def _from_landmark(
    connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, limit: int, mark: Landmark | None
) -> tuple[RunRow, ...] | None:
    after = onwards(sort, mark.key) if mark is not None else None
    if mark is None or after is None:
        return None
    gap = mark.offset - offset
    rest, forwards = both(where(condition), after), order_by(sort)
    if gap <= 0:
        return page(connection, rest, forwards, -gap, limit)
    some = min(gap, limit)
    earlier = both(where(condition), before(sort, mark.key)[0])
    above = page(connection, earlier, order_by(sort, backwards=True), gap - some, some)
    return (*reversed(above), *page(connection, rest, forwards, 0, limit - some))


def index_of(connection: sqlite3.Connection, run_id: str, wanted: RunFilter, sort: RunSort) -> int | None:
    """The run's place in the order, from 0; None: the filter hides it, or it is not held."""
    condition = where(wanted)
    with snapshot(connection):
        key = connection.execute(
            f"SELECT {', '.join(key_columns(sort))} FROM runs WHERE run_id = ? AND {condition.sql}",
            (run_id, *condition.parameters),
        ).fetchone()
        if key is None:
            return None
        return sum(
            count(connection, Where(f"{part.sql} AND {condition.sql}", part.parameters + condition.parameters))
            for part in before(sort, key)
        )


def first_rows(
    connection: sqlite3.Connection, wanted: RunFilter, sort: RunSort, limit: int, patience_s: float
) -> tuple[RunRow, ...]:
    """The first `limit` runs of the order, or those of them that are found within `patience_s`."""
    deadline = time.monotonic() + patience_s
    condition = where(wanted)
    found: list[RunRow] = []
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        # One walk along the order's index: each row is there as soon as it is found.
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM runs AS r WHERE {condition.sql} ORDER BY {order_by(sort)} LIMIT ?",
            (*condition.parameters, limit),
        )
        for values in rows:
            found.append(row_of(values))  # noqa: PERF401 — what was found before the time is up has to stay
    except sqlite3.OperationalError:
        if time.monotonic() <= deadline:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    return tuple(found)


def page(connection: sqlite3.Connection, condition: Where, order: str, offset: int, limit: int) -> tuple[RunRow, ...]:
    """At most `limit` rows of an order, after skipping `offset`."""
    # The inner select skips along an index; only the window's own rows are looked up in the table.
    found = connection.execute(
        f"SELECT {COLUMNS} FROM"
        f" (SELECT id AS run FROM runs WHERE {condition.sql} ORDER BY {order} LIMIT ? OFFSET ?) AS w"
        f" CROSS JOIN runs AS r ON r.id = w.run ORDER BY {order}",
        (*condition.parameters, limit, offset),
    )
    return tuple(row_of(values) for values in found.fetchall())
