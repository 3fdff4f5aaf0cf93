"""Reading runs: their number, values to filter by, rows of a table, and runs in full with their observations."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec.json
from msgspec import Struct
from msgspec.structs import replace

from storage.cache import texts
from storage.cache.run_sql import ACTIVE_SQL, GOING_SQL, order_by, took, where
from storage.database import column, data_version, execute, scalar, select_in, snapshot
from storage.records import FINAL_STATUSES, Run, RunDetail, RunFilter, RunRow, RunSort, RunSummary
from storage.records.run import STATUS_ORDER, ActiveRun, Repository, StatusTransition
from storage.values import Where, from_us, from_us_or_none, record_of, sqlite_text, to_sortable_us

CAP: Final = 500
"""How many repositories, branches or agents are returned at most."""
_NAMED: Final = ", ".join(f"'{status}'" for status in STATUS_ORDER)
UNSETTLED: Final = f"""
SELECT status FROM statuses WHERE NOT is_final AND runs > 0 AND status NOT IN ({_NAMED})
ORDER BY runs DESC, status LIMIT 10
"""
"""Statuses that may or may not be final, by falling number of runs."""
REPOSITORIES: Final = f"SELECT label FROM repositories ORDER BY newest_us DESC, label LIMIT {CAP}"
"""Labels of the repositories with runs, the one with the most recent run first."""
T = TypeVar("T")

_RECENT: Final = 5_000
"""How many of the newest runs the branches are read of: agents make a branch for each run."""
_REMEMBERED: Final = 256
"""How many values are kept: each letter that is typed into a search makes a new filter."""
_SUMMARY: Final = "(SELECT summary_json FROM summaries WHERE summaries.run = r.id)"
COLUMNS: Final = (
    "r.run_id, r.status, r.branch, r.repository, r.created_us, r.updated_us, r.first_seen_us, r.presence, r.is_final,"
    f" r.took_us, (SELECT asked_us FROM sightings WHERE sightings.id = r.id), {_SUMMARY}"
)
_RUN: Final = "r.run_id, r.status, r.branch, b.platform, b.data_json, r.created_us, r.updated_us, b.raw_json"


class Remembered(Struct, eq=False, kw_only=True):
    """Results of earlier reads, kept until the cache changes. One instance serves one connection, on its thread."""

    reads_texts: bool = True
    """Whether searches may take the tenth of a second that reading all texts takes."""
    values: dict[Hashable, Any] = {}
    _version: int | None = None

    def get(self, connection: sqlite3.Connection, key: Hashable, read: Callable[[], T]) -> T:
        version = data_version(connection)
        if version != self._version or len(self.values) > _REMEMBERED:
            self._version, self.values = version, {}
        if key not in self.values:
            self.values[key] = read()
        value: T = self.values[key]
        return value


def total(connection: sqlite3.Connection, condition: RunFilter, remembered: Remembered) -> int:
    base = replaced_statuses(condition)
    if (base and condition != base) or condition.active:
        return remembered.get(connection, ("total", condition), lambda: count(connection, where(condition)))
    # The counts by status are shown with the total, and their sum is the total: one scan gives both.
    by_name = by_status(connection, condition, remembered)
    finals = final_statuses(connection)
    return sum(runs for status, runs in by_name.items() if condition.lets_status_through(status, finals))


def by_status(connection: sqlite3.Connection, condition: RunFilter, remembered: Remembered) -> dict[str, int]:
    """The number of matching runs by status, regardless of the filter's statuses; empty ones are left out."""
    base = replaced_statuses(condition)
    matching = where(base)
    # Storing keeps the numbers of all runs up to date, so a million runs are never counted.
    counts = f"SELECT status, count(*) FROM runs WHERE {matching.sql} GROUP BY status"
    query = counts if base else "SELECT status, runs FROM statuses WHERE runs > 0"

    def read() -> dict[str, int]:
        indexed = None
        if base.search and remembered.reads_texts:
            indexed = texts.by_status(connection, base)
        if indexed is None:
            return dict(connection.execute(query, matching.parameters).fetchall())
        return indexed

    return dict(remembered.get(connection, base, read))


def lost_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """The number of active runs that the service no longer shows, by status."""
    query = f"SELECT status, count(*) FROM runs WHERE {ACTIVE_SQL} AND presence = 'lost' GROUP BY status"
    return dict(connection.execute(query).fetchall())


def replaced_statuses(condition: RunFilter) -> RunFilter:
    """The filter without its conditions on statuses."""
    return replace(condition, statuses=(), not_statuses=(), active=False, ended=False)


def count(connection: sqlite3.Connection, condition: Where) -> int:
    return int(scalar(connection, f"SELECT count(*) FROM runs WHERE {condition.sql}", *condition.parameters))


def final_statuses(connection: sqlite3.Connection) -> frozenset[str]:
    """The statuses that end a turn."""
    return FINAL_STATUSES.union(column(connection, "SELECT status FROM statuses WHERE is_final"))


def branches(connection: sqlite3.Connection, wanted: RunFilter) -> tuple[str, ...]:
    """Branches of the newest matching runs, the one with the most recent run first."""
    condition = where(wanted)
    sql = (
        "SELECT branch FROM (SELECT branch, created_us FROM runs"
        f" WHERE {condition.sql} AND branch <> '' ORDER BY {order_by(RunSort())} LIMIT ?)"
        " GROUP BY branch ORDER BY max(created_us) DESC, branch LIMIT ?"
    )
    return tuple(column(connection, sql, *condition.parameters, _RECENT, CAP))


def agents(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The names of known agents, the one with the most recent run first."""
    sql = "SELECT agent FROM runs WHERE agent > '' GROUP BY agent ORDER BY max(created_us) DESC, agent LIMIT ?"
    return tuple(column(connection, sql, CAP))


def on_branch(
    connection: sqlite3.Connection, run_id: str, each_way: int, count_limit: int
) -> tuple[int, tuple[RunRow, ...]]:
    """The number of runs on a run's branch, at most `most`, and those around it, newest first."""
    with snapshot(connection):
        row = connection.execute(
            "SELECT branch, repository, created_us, run_id FROM runs WHERE run_id = ? AND branch <> ''", (run_id,)
        ).fetchone()
        if row is None:
            return 0, ()
        # The plus keeps SQLite from walking the repository's index: a branch has few runs, a repository has many.
        same = "branch = ? AND +repository = ?"
        around = [
            connection.execute(
                f"SELECT {COLUMNS} FROM runs AS r WHERE {same} AND (created_us, run_id) {side} (?, ?)"
                f" ORDER BY created_us {way}, run_id {way} LIMIT ?",
                (*row, limit),
            ).fetchall()
            for side, way, limit in ((">", "ASC", each_way), ("<=", "DESC", each_way + 1))
        ]
        total = scalar(
            connection, f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {same} LIMIT ?)", *row[:2], count_limit
        )
    return total, tuple(row_of(values) for values in (*reversed(around[0]), *around[1]))


def row_of(row: Sequence[Any]) -> RunRow:
    """A table's row, made of the values of `COLUMNS`."""
    run_id, status, branch, label, created_us, updated_us, first_us, presence, is_final, took_us, seen_us, known = row
    updated_at = from_us_or_none(updated_us)
    values = run_id, status, branch, label, from_us_or_none(created_us), updated_at, from_us(first_us), presence
    return RunRow(*values, bool(is_final), took(took_us), from_us(seen_us), _summary(known, status, updated_at))


def _summary(summary_json: str | None, status: str, updated_at: datetime | None) -> RunSummary:
    """The summary of a run in this state; for an earlier state, only the instructions."""
    if summary_json is None:
        return RunSummary()
    summary = msgspec.json.decode(summary_json, type=RunSummary)
    is_current = (summary.status, summary.updated_at) == (status, updated_at)
    if is_current:
        return summary
    return RunSummary(summary.asked, agent=summary.agent)


def runs(
    connection: sqlite3.Connection, wanted: RunFilter, limit: int | None, after: Run | None = None
) -> tuple[Run, ...]:
    """The newest `limit` matching runs, or those that follow `after`; with no limit, all of them."""
    condition, order = where(wanted), order_by(RunSort())
    if after is not None:
        condition &= Where("(created_us, run_id) < (?, ?)", (to_sortable_us(after.created_at), after.run_id))
    sql = (
        f"SELECT {_RUN} FROM (SELECT id AS run FROM runs WHERE {condition.sql} ORDER BY {order} LIMIT ?) AS w"
        f" CROSS JOIN runs AS r ON r.id = w.run CROSS JOIN run_bodies AS b ON b.id = w.run ORDER BY {order}"
    )
    rows = execute(connection, sql, *condition.parameters, -1 if limit is None else max(0, limit))
    return tuple(_run(values) for values in rows.fetchall())


def active_runs(connection: sqlite3.Connection) -> tuple[ActiveRun, ...]:
    """Runs whose status is neither known nor learnt to be final, except those that the service lost; newest first."""
    sql = f"SELECT run_id, status, created_us FROM runs WHERE {GOING_SQL} ORDER BY {order_by(RunSort())}"
    rows = connection.execute(sql).fetchall()
    return tuple(ActiveRun(run_id, status, from_us_or_none(us)) for run_id, status, us in rows)


def details(connection: sqlite3.Connection, run_ids: Sequence[str]) -> dict[str, RunDetail]:
    """All data of these runs, by id; unknown ones are left out."""
    details: dict[str, RunDetail] = {}
    moves: defaultdict[str, list[StatusTransition]] = defaultdict(list)
    with snapshot(connection):
        sql = "SELECT run_id, old, new, at_us FROM runs AS r JOIN transitions AS t ON t.run = r.id"
        # Each id once: one that came in two parts would get its transitions twice.
        once = [*dict.fromkeys(map(sqlite_text, run_ids))]
        for row in select_in(connection, f"{sql} WHERE run_id IN (?) ORDER BY t.id", once):
            moves[row[0]].append(record_of(StatusTransition, row))
        sql = (
            f"SELECT {_RUN}, r.first_seen_us, s.asked_us, r.presence, r.first_status, r.first_at_us, r.took_us,"
            f" {_SUMMARY} FROM runs AS r JOIN run_bodies AS b ON b.id = r.id JOIN sightings AS s ON s.id = r.id"
        )
        rows = [*select_in(connection, f"{sql} WHERE r.run_id IN (?) ORDER BY r.run_id", once)]
        finals = final_statuses(connection)
    for *values, first_seen_us, last_seen_us, presence, first_status, first_at_us, took_us, summary in rows:
        run = _run(values)
        first = StatusTransition(run.run_id, None, first_status, from_us(first_at_us))
        seen = from_us(first_seen_us), from_us(last_seen_us), presence
        facts = took(took_us), finals, _summary(summary, run.status, run.updated_at)
        details[run.run_id] = RunDetail(run, *seen, (first, *moves[run.run_id]), *facts)
    return details


def _run(values: Sequence[Any]) -> Run:
    run_id, status, branch, platform, data_json, created_us, updated_us, raw_json = values
    times = from_us_or_none(created_us), from_us_or_none(updated_us)
    return Run(run_id, status, branch, Repository(platform, data_json), *times, raw_json)
