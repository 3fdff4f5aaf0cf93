"""Windows of rows: runs in order with gaps between them, or in groups, by falling number of failures."""

import json
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from storage.cache import texts
from storage.cache.coverage import coverage
from storage.cache.read_runs import COLUMNS, Remembered, count, row_of, total
from storage.cache.run_sql import GOING_SQL, STUCK_SQL, Key, before, key_columns, onwards, order_by, where
from storage.database import snapshot
from storage.records import CoverageGap, RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from storage.records.query import GroupBy, Grouping, RunGroup
from storage.values import Where, from_us, to_us

NEAR: Final = 2000
"""The offset up to which skipping rows from the front costs less than counting them."""
MAX_GROUPS: Final = 500
"""Groups shown one by one; the last line covers the others."""
_STEPS: Final = 20_000
"""SQLite virtual machine steps between two checks of the clock."""


def window(connection: sqlite3.Connection, request: WindowRequest, remembered: Remembered) -> RunWindow:
    """The rows around a position; a window beyond the end of the order stops there."""
    condition, sort, limit = request.condition, request.sort, request.limit
    with snapshot(connection):
        if request.grouping is not None:
            return _read_grouped(connection, request, request.grouping, remembered)
        runs = total(connection, condition, remembered)
        gaps = _gaps(connection, condition, sort, runs, remembered)

        def row(run_id: str) -> int | None:
            index = index_of(connection, run_id, condition, sort)
            if index is None:
                return None
            return index + bisect_right(gaps, index, key=itemgetter(0))

        shift, cursor = _moves(request, row)
        offset = max(0, min(request.offset + shift, runs + len(gaps) - limit))
        numbered = tuple((above + number, gap) for number, (above, gap) in enumerate(gaps))
        first = offset - sum(number < offset for number, _ in numbered)
        page_rows = rows(connection, condition, sort, first, limit, remembered)
    return RunWindow(runs + len(gaps), offset, page_rows, shift, cursor, numbered)


def _gaps(
    connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, runs: int, remembered: Remembered
) -> list[tuple[int, CoverageGap]]:
    """The newest gaps between two runs, in their order, each with how many runs are above it."""
    if sort.column != "started" or condition.is_scan:
        return []
    places = []
    for gap in condition.gaps_in(coverage(connection))[:9]:  # Each needs a count.
        if gap.after is not None and gap.before is not None:
            # The row is where no run is held for the longest time: a gap has few runs, found because they are active.
            (end_us,) = connection.execute(
                "SELECT at_us FROM (SELECT at_us, at_us - lag(at_us, 1, :after) OVER (ORDER BY at_us) AS empty_us FROM"
                " (SELECT created_us AS at_us FROM runs WHERE created_us > :after AND created_us < :before"
                " UNION ALL VALUES (:before))) ORDER BY empty_us DESC, at_us DESC LIMIT 1",
                {"after": to_us(gap.after), "before": to_us(gap.before)},
            ).fetchone()
            since = max(from_us(end_us), condition.since or from_us(end_us))
            newer = total(connection, replace(condition, since=since), remembered)
            places.append((newer if sort.descending else runs - newer, gap))
    return sorted((place for place in places if 0 < place[0] < runs), key=itemgetter(0))


def _moves(request: WindowRequest, row: Callable[[str], int | None]) -> tuple[int, int | None]:
    """The number of rows by which the anchor moved down, and the cursor's current row."""
    if not request.is_fresh:
        return 0, None if request.cursor_id is None else request.cursor_index
    anchor = None if request.anchor_id is None else row(request.anchor_id)
    cursor = anchor if request.cursor_id in (None, request.anchor_id) else row(request.cursor_id)
    return 0 if anchor is None else anchor - request.anchor_index, None if request.cursor_id is None else cursor


def rows(
    connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, limit: int, remembered: Remembered
) -> tuple[RunRow, ...]:
    """The window of at most `limit` runs that starts `offset` runs into the order.

    Far from both ends it is found from the window that was read last, as long as the cache has not changed.
    """
    offset, limit = max(0, offset), max(0, limit)
    everything = where(condition)
    forwards = order_by(sort)
    backwards = order_by(sort, backwards=True)
    with snapshot(connection):
        if offset <= NEAR:
            matches = search_rows(connection, condition, sort, offset, limit, remembered)
            if matches is None:
                return page(connection, everything, forwards, offset, limit)
            return matches
        runs = total(connection, condition, remembered)
        limit = max(0, min(limit, runs - offset))
        place, run_id = remembered.get(connection, ("place", condition, sort), lambda: (0, ""))
        gap = place - offset
        key = key_of(connection, run_id, RunFilter(), sort)
        remaining = None if key is None or abs(gap) >= min(offset, runs - offset) else onwards(sort, key)
        if remaining is not None and key is not None:
            above_count = max(0, min(gap, limit))
            above = everything & before(sort, key)[0]
            matches = (
                *reversed(page(connection, above, backwards, max(0, gap - above_count), above_count)),
                *page(connection, everything & remaining, forwards, max(0, -gap), limit - above_count),
            )
        elif offset < runs // 2:
            matches = page(connection, everything, forwards, offset, limit)
        else:
            matches = tuple(reversed(page(connection, everything, backwards, runs - offset - limit, limit)))
        if matches:
            remembered.values["place", condition, sort] = offset, matches[0].run_id
    return matches


def search_rows(
    connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, limit: int, remembered: Remembered
) -> tuple[RunRow, ...] | None:
    """The rows of a search in the usual order, from the index of texts; None: it cannot help."""
    if not condition.search or sort != RunSort() or not remembered.reads_texts:
        return None
    known: tuple[int, list[texts.Place]] = remembered.get(connection, ("newest", condition), lambda: (0, []))
    count, places = known
    if len(places) == count < offset + limit:
        count = offset + limit
        if (newest := texts.newest(connection, condition, count)) is None:
            return None
        places = newest
        remembered.values["newest", condition] = count, places
    numbers = json.dumps([number for _, _, number in places[offset : offset + limit]])
    sql = f"SELECT {COLUMNS} FROM json_each(?) AS w CROSS JOIN runs AS r ON r.id = w.value ORDER BY w.key"
    return tuple(row_of(values) for values in connection.execute(sql, (numbers,)).fetchall())


def index_of(connection: sqlite3.Connection, run_id: str, wanted: RunFilter, sort: RunSort) -> int | None:
    """The run's place in the order, from 0; None: the filter hides it, or it is not held."""
    with snapshot(connection):
        key = key_of(connection, run_id, wanted, sort)
        if key is None:
            return None
        return rows_before(connection, key, wanted, sort)


def key_of(connection: sqlite3.Connection, run_id: str, wanted: RunFilter, sort: RunSort) -> Key | None:
    """The values that determine a run's place in the order; None: the filter hides it, or it is not held."""
    condition = where(wanted)
    sql = f"SELECT {', '.join(key_columns(sort))} FROM runs WHERE run_id = ? AND {condition.sql}"
    row: Key | None = connection.execute(sql, (run_id, *condition.parameters)).fetchone()
    return row


def keys(
    connection: sqlite3.Connection, wanted: RunFilter, sort: RunSort, limit: int, *, is_backwards: bool
) -> list[Key]:
    """The keys of the first `limit` runs of the order, or of the last ones from the end."""
    condition = where(wanted)
    return connection.execute(
        f"SELECT {', '.join(key_columns(sort))} FROM runs WHERE {condition.sql}"
        f" ORDER BY {order_by(sort, backwards=is_backwards)} LIMIT ?",
        (*condition.parameters, limit),
    ).fetchall()


def rows_before(
    connection: sqlite3.Connection, key: Key, wanted: RunFilter, sort: RunSort, *, is_after_equal: bool = False
) -> int:
    """The number of runs before a key that may be another cache's; with `is_after_equal` including one that has it."""
    condition, parts = where(wanted), [*before(sort, key)]
    if is_after_equal:
        parts.append(Where(f"({', '.join(key_columns(sort))}) = ({', '.join('?' * len(key))})", key))
    with snapshot(connection):
        return sum(count(connection, part & condition) for part in parts)


def first_rows(
    connection: sqlite3.Connection,
    wanted: RunFilter,
    sort: RunSort,
    limit: int,
    patience_s: float,
    remembered: Remembered,
) -> tuple[RunRow, ...]:
    """The first `limit` runs of the order, or those of them that are found within `patience_s`."""
    with snapshot(connection):
        indexed = search_rows(connection, wanted, sort, 0, limit, remembered)
    if indexed is not None:
        return indexed
    deadline = time.monotonic() + patience_s
    condition = where(wanted)
    matches: list[RunRow] = []
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        # One walk along the order's index: each row is there as soon as it is found.
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM runs AS r WHERE {condition.sql} ORDER BY {order_by(sort)} LIMIT ?",
            (*condition.parameters, limit),
        )
        for values in rows:
            matches.append(row_of(values))  # noqa: PERF401 — what was found before the time is up has to stay
    except sqlite3.OperationalError:
        if time.monotonic() <= deadline:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    return tuple(matches)


def page(connection: sqlite3.Connection, condition: Where, order: str, offset: int, limit: int) -> tuple[RunRow, ...]:
    """The next rows of an order, at most `limit`, after skipping `offset`."""
    if limit <= 0:
        return ()
    # The inner select skips along an index; only the window's own rows are looked up in the table.
    cursor = connection.execute(
        f"SELECT {COLUMNS} FROM"
        f" (SELECT id AS run FROM runs WHERE {condition.sql} ORDER BY {order} LIMIT ? OFFSET ?) AS w"
        f" CROSS JOIN runs AS r ON r.id = w.run ORDER BY {order}",
        (*condition.parameters, limit, offset),
    )
    return tuple(row_of(values) for values in cursor.fetchall())


def _read_grouped(
    connection: sqlite3.Connection, request: WindowRequest, grouping: Grouping, remembered: Remembered
) -> RunWindow:
    """The rows around a position; heads of groups are rows as well."""
    condition, limit, column = request.condition, request.limit, grouping.by
    groups = remembered.get(connection, (condition, column), lambda: group_runs(connection, condition, column))
    heads: list[tuple[int, RunGroup]] = []
    number = 0
    for group in groups:
        # A group whose name is a pattern is always folded.
        is_folded = "*" in group.name or grouping.is_folded != (group.name in grouping.others)
        head = replace(group, is_folded=group.others > 0 or is_folded)
        heads.append((number, head))
        number += 1 + head.rows
    starts = {group.name: start for start, group in heads if group.rows}

    def row(run_id: str) -> int | None:
        (name,) = connection.execute(f"SELECT {column} FROM runs WHERE run_id = ?", (run_id,)).fetchone() or (None,)
        if name not in starts:
            return None
        index = index_of(connection, run_id, within(condition, column, name), request.sort)
        return None if index is None else starts[name] + 1 + index

    shift, cursor = _moves(request, row)
    offset = max(0, min(request.offset + shift, number - limit))
    visible: list[RunRow] = []
    for start, group in heads:
        first = max(offset, start + 1)
        end = min(offset + limit, start + 1 + group.rows)
        if first < end:
            members = within(condition, column, group.name)
            visible += rows(connection, members, request.sort, first - start - 1, end - first, remembered)
    matching = sum(group.runs for group in groups)
    return RunWindow(number, offset, tuple(visible), shift, cursor, heads=tuple(heads), matching=matching)


def group_runs(connection: sqlite3.Connection, condition: RunFilter, by: GroupBy) -> tuple[RunGroup, ...]:
    """The groups of the matching runs, the worst first."""
    matching = where(condition)
    # Stuck and active runs are few and have separate indexes; only failures are counted among all runs.
    # The plus keeps SQLite from using the index of the grouped column instead of the condition's.
    few = f"SELECT {by} AS name, count(*) AS runs FROM runs WHERE {{}} AND {matching.sql} GROUP BY +{by}"
    counted = connection.execute(
        f"WITH counted AS (SELECT {by} AS name, count(*) AS runs, sum(status = 'failed') AS failed,"
        f" max(created_us) AS newest_us FROM runs WHERE {matching.sql} GROUP BY {by}),"
        f" flagged AS ({few.format(STUCK_SQL)}), going AS ({few.format(GOING_SQL)})"
        " SELECT name, c.runs, failed, coalesce(s.runs, 0), coalesce(a.runs, 0), count(*) OVER (), sum(c.runs) OVER ()"
        " FROM counted AS c LEFT JOIN flagged AS s USING (name) LEFT JOIN going AS a USING (name)"
        " ORDER BY failed DESC, coalesce(s.runs, 0) DESC, coalesce(a.runs, 0) DESC, newest_us DESC, name LIMIT ?",
        (*matching.parameters, *matching.parameters, *matching.parameters, MAX_GROUPS),
    ).fetchall()
    groups = [RunGroup(*values[:5]) for values in counted]
    if counted and (others := counted[0][5] - MAX_GROUPS) > 0:
        groups.append(RunGroup("", counted[0][6] - sum(group.runs for group in groups), others=others))
    return tuple(groups)


def within(condition: RunFilter, by: GroupBy, name: str) -> RunFilter:
    if by == "repository":
        return replace(condition, repositories=(name,))
    return replace(condition, branches=(name,))
