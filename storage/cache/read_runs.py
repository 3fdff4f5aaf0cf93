"""Counts of runs, values to filter by, and a run's neighbours on its branch."""

import sqlite3
from dataclasses import replace
from typing import Any, Final

from storage.cache.run_sql import Where, order_by, where
from storage.cache.statuses import final_statuses
from storage.cache.turns import took
from storage.database import data_version, snapshot
from storage.records import RunFilter, RunRow, RunSort
from storage.values import from_us, from_us_or_none

REPOSITORIES_CAP: Final = 500
BRANCHES_CAP: Final = 500

_RECENT: Final = 5_000
"""Runs whose branches are read: agents make a branch for each run."""

_REMEMBERED: Final = 256
"""Filters whose counts are kept: each letter of a search makes a new one."""

COLUMNS: Final = (
    "r.run_id, r.status, r.branch, r.repository, r.created_us, r.updated_us, r.first_seen_us, r.presence, r.is_final,"
    " r.took_us, (SELECT asked_us FROM sightings WHERE sightings.id = r.id)"
)


class Counts:
    """Numbers of runs, kept until the cache changes; for one connection, on its thread."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._totals: dict[RunFilter, int] = {}
        self._by_status: dict[RunFilter, dict[str, int]] = {}

    def total(self, connection: sqlite3.Connection, condition: RunFilter) -> int:
        """The number of matching runs."""
        self._forget_stale(connection)
        rest = replaced_statuses(condition)
        if condition == rest or not rest:
            # The counts by status are needed as well: one scan gives both.
            known, finals = self.by_status(connection, condition), final_statuses(connection)
            return sum(runs for status, runs in known.items() if condition.lets_status_through(status, finals))
        if condition not in self._totals:
            self._totals[condition] = count(connection, where(condition))
        return self._totals[condition]

    def by_status(self, connection: sqlite3.Connection, condition: RunFilter) -> dict[str, int]:
        """The number of matching runs by status, regardless of the filter's statuses; empty ones are left out."""
        self._forget_stale(connection)
        rest = replaced_statuses(condition)
        if rest not in self._by_status:
            self._by_status[rest] = _count_by_status(connection, where(rest)) if rest else _count_statuses(connection)
        return dict(self._by_status[rest])

    def _forget_stale(self, connection: sqlite3.Connection) -> None:
        version = data_version(connection)
        if version != self._version or len(self._totals) + len(self._by_status) > _REMEMBERED:
            self._totals.clear()
            self._by_status.clear()
            self._version = version


def replaced_statuses(condition: RunFilter) -> RunFilter:
    """The filter without its conditions on statuses."""
    return replace(condition, statuses=(), not_statuses=(), active=False, ended=False)


def count(connection: sqlite3.Connection, condition: Where) -> int:
    """The number of matching runs."""
    found = connection.execute(f"SELECT count(*) FROM runs WHERE {condition.sql}", condition.parameters)
    return int(found.fetchone()[0])


def _count_statuses(connection: sqlite3.Connection) -> dict[str, int]:
    """Of all runs: storing updates these numbers, so that a million runs are not counted after every poll."""
    return dict(connection.execute("SELECT status, runs FROM statuses WHERE runs > 0").fetchall())


def _count_by_status(connection: sqlite3.Connection, condition: Where) -> dict[str, int]:
    found = connection.execute(
        f"SELECT status, count(*) FROM runs WHERE {condition.sql} GROUP BY status",
        condition.parameters,
    )
    return dict(found.fetchall())


def known_statuses(connection: sqlite3.Connection) -> tuple[str, ...]:
    """All statuses ever seen."""
    return tuple(status for (status,) in connection.execute("SELECT status FROM statuses ORDER BY status").fetchall())


def repositories(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Labels of the repositories with runs, the one with the most recent run first."""
    found = connection.execute(
        "SELECT label FROM repositories ORDER BY newest_us DESC, label LIMIT ?", (REPOSITORIES_CAP,)
    )
    return tuple(label for (label,) in found.fetchall())


def branches(connection: sqlite3.Connection, wanted: RunFilter) -> tuple[str, ...]:
    """Branches of the newest matching runs, the one with the most recent run first."""
    condition = where(wanted)
    found = connection.execute(
        "SELECT branch FROM (SELECT branch, created_us FROM runs"
        f" WHERE {condition.sql} AND branch <> '' ORDER BY {order_by(RunSort())} LIMIT ?)"
        " GROUP BY branch ORDER BY max(created_us) DESC, branch LIMIT ?",
        (*condition.parameters, _RECENT, BRANCHES_CAP),
    )
    return tuple(branch for (branch,) in found.fetchall())


def on_branch(connection: sqlite3.Connection, run_id: str, each_way: int, most: int) -> tuple[int, tuple[RunRow, ...]]:
    """The number of runs on a run's branch, at most `most`, and those around it, newest first."""
    with snapshot(connection):
        place = connection.execute(
            "SELECT branch, repository, created_us, run_id FROM runs WHERE run_id = ? AND branch <> ''", (run_id,)
        ).fetchone()
        if place is None:
            return 0, ()
        # The plus keeps SQLite from walking the repository's index: a branch has few runs, a repository has many.
        same = "branch = ? AND +repository = ?"
        around = [
            connection.execute(
                f"SELECT {COLUMNS} FROM runs AS r WHERE {same} AND (created_us, run_id) {side} (?, ?)"
                f" ORDER BY created_us {way}, run_id {way} LIMIT ?",
                (*place, limit),
            ).fetchall()
            for side, way, limit in ((">", "ASC", each_way), ("<=", "DESC", each_way + 1))
        ]
        (total,) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {same} LIMIT ?)",
            (*place[:2], most),
        ).fetchone()
    return total, tuple(row_of(values) for values in (*reversed(around[0]), *around[1]))


def row_of(values: tuple[Any, ...]) -> RunRow:
    """A row from its `COLUMNS`."""
    run_id, status, branch, repository, created_us, updated_us, first_seen_us, presence, *rest = values
    is_final, took_us, last_seen_us = rest
    return RunRow(
        run_id=run_id,
        status=status,
        branch_name=branch,
        repository=repository,
        created_at=from_us_or_none(created_us),
        updated_at=from_us_or_none(updated_us),
        first_seen_at=from_us(first_seen_us),
        presence=presence,
        is_final=bool(is_final),
        took=took(took_us),
        last_seen_at=from_us(last_seen_us),
    )
