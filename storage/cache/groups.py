"""Windows of grouped runs: the groups with most failures first, each folded to its head or followed by its runs."""

import sqlite3
from bisect import bisect_right
from dataclasses import replace
from typing import Final

from storage.cache.read_runs import Counts
from storage.cache.run_sql import STUCK_SQL, where
from storage.cache.window import Landmarks, index_of, rows
from storage.database import data_version, snapshot
from storage.records import RunFilter, RunRow, RunWindow, WindowRequest
from storage.records.query import GroupBy, Grouping, RunGroup

MOST: Final = 500
"""Groups shown one by one; the last line stands for the others."""


class Groups:
    """The groups of one filter, kept until the cache changes. One instance serves one connection, on its thread."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[tuple[RunFilter, GroupBy], tuple[RunGroup, ...]] = {}

    def of(self, connection: sqlite3.Connection, condition: RunFilter, by: GroupBy) -> tuple[RunGroup, ...]:
        """The groups of the matching runs, the worst first."""
        version = data_version(connection)
        if version != self._version or (condition, by) not in self._known:
            self._version, self._known = version, {(condition, by): _read(connection, condition, by)}
        return self._known[condition, by]


def _read(connection: sqlite3.Connection, condition: RunFilter, by: GroupBy) -> tuple[RunGroup, ...]:
    wanted = where(condition)
    # Few are stuck or active: those have indexes of their own, and only failures are counted among all runs.
    # The plus keeps SQLite from using the index of the grouped column instead of the condition's.
    few = f"SELECT {by} AS name, count(*) AS runs FROM runs WHERE {{}} AND {wanted.sql} GROUP BY +{by}"
    found = connection.execute(
        f"WITH counted AS (SELECT {by} AS name, count(*) AS runs, sum(status = 'failed') AS failed,"
        f" max(created_us) AS newest_us FROM runs WHERE {wanted.sql} GROUP BY {by}),"
        f" flagged AS ({few.format(STUCK_SQL)}), going AS ({few.format(where(RunFilter(active=True)).sql)})"
        " SELECT name, c.runs, failed, coalesce(s.runs, 0), coalesce(a.runs, 0), count(*) OVER (), sum(c.runs) OVER ()"
        " FROM counted AS c LEFT JOIN flagged AS s USING (name) LEFT JOIN going AS a USING (name)"
        " ORDER BY failed DESC, coalesce(s.runs, 0) DESC, coalesce(a.runs, 0) DESC, newest_us DESC, name LIMIT ?",
        (*wanted.parameters, *wanted.parameters, *wanted.parameters, MOST),
    ).fetchall()
    groups = [RunGroup(*values[:5]) for values in found]
    if found and found[0][5] > MOST:
        others, runs = found[0][5] - MOST, found[0][6] - sum(group.runs for group in groups)
        groups.append(RunGroup("", runs, others=others))
    return tuple(groups)


def within(condition: RunFilter, by: GroupBy, name: str) -> RunFilter:
    """The filter, restricted to this group's runs."""
    return replace(condition, repositories=(name,)) if by == "repository" else replace(condition, branches=(name,))


def window(
    connection: sqlite3.Connection, request: WindowRequest, counts: Counts, landmarks: Landmarks, groups: Groups
) -> RunWindow:
    """The rows around a place; heads of groups are rows as well.

    Raises:
        ValueError: The request has no grouping.
    """
    grouping, limit = request.grouping, request.limit
    if grouping is None:
        raise ValueError("no grouping")
    with snapshot(connection):
        heads, total = _heads(groups.of(connection, request.condition, grouping.by), grouping)
        shift, cursor = _moves(connection, request, grouping, heads)
        offset = max(0, min(request.offset + shift, total - limit))
        found: list[RunRow] = []
        for start, group in heads[_head_at(heads, offset) :]:
            first, end = max(offset, start + 1), min(offset + limit, start + 1 + group.rows)
            if start >= offset + limit:
                break
            if first < end:
                condition = within(request.condition, grouping.by, group.name)
                found += rows(connection, condition, request.sort, first - start - 1, end - first, counts, landmarks)
    runs = sum(group.runs for _, group in heads)
    return RunWindow(total, offset, tuple(found), shift, cursor, heads=heads, matching=runs)


def _heads(groups: tuple[RunGroup, ...], grouping: Grouping) -> tuple[tuple[tuple[int, RunGroup], ...], int]:
    """The groups by the row of their heads, and the number of all rows."""
    heads: list[tuple[int, RunGroup]] = []
    number = 0
    for group in groups:
        shown = replace(group, is_folded=group.others > 0 or grouping.folds(group.name))
        heads.append((number, shown))
        number += 1 + shown.rows
    return tuple(heads), number


def _head_at(heads: tuple[tuple[int, RunGroup], ...], row: int) -> int:
    """The place among the heads of the last one up to this row."""
    return max(0, bisect_right(heads, row, key=lambda head: head[0]) - 1)


def _moves(
    connection: sqlite3.Connection, request: WindowRequest, grouping: Grouping, heads: tuple[tuple[int, RunGroup], ...]
) -> tuple[int, int | None]:
    """By how many rows the anchor moved down, and the cursor's current place."""
    wanted = where(request.condition)

    def index(run_id: str | None) -> int | None:
        found = connection.execute(
            f"SELECT {grouping.by} FROM runs WHERE run_id = ? AND {wanted.sql}", (run_id, *wanted.parameters)
        ).fetchone()
        start = next((start for start, group in heads if found and group.rows and group.name == found[0]), None)
        if start is None or run_id is None:
            return None
        index = index_of(connection, run_id, within(request.condition, grouping.by, found[0]), request.sort)
        return None if index is None else start + 1 + index

    if not request.is_fresh:
        return 0, None if request.cursor_id is None else request.cursor_index
    anchor, cursor = index(request.anchor_id), index(request.cursor_id)
    return 0 if anchor is None else anchor - request.anchor_index, cursor
