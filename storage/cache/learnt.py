"""What was learnt of the service: how it filters and shows times, and which of its statuses are final."""

import sqlite3
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, cast

from storage.cache.run_sql import ACTIVE_SQL
from storage.cache.turns import took_sql
from storage.database import immediate
from storage.records import ACTIVE_STATUSES, FINAL_STATUSES, DateFilter, Habit, RunClock, ServiceTraits
from storage.records.budget import BudgetState
from storage.values import NO_TIME_US, from_us, sqlite_text, to_us

UNSETTLED: Final = 10
REMEMBERED: Final = timedelta(days=1)
"""How long a habit is taken for granted."""
_SPEC: Final = ", ".join(f"'{status}'" for status in (*ACTIVE_STATUSES, *sorted(FINAL_STATUSES)))
_SECOND: Final = timedelta(seconds=1)

_SETTLE: Final = f"""
UPDATE runs SET is_final = :is_final, took_us = {took_sql(":is_final")} WHERE status = :status AND is_final <> :is_final
"""


def traits(connection: sqlite3.Connection) -> ServiceTraits:
    """The service's habits, as far as they are known."""
    held = dict(connection.execute("SELECT name, value FROM service_traits").fetchall())
    return ServiceTraits(
        cast("DateFilter", held.get("date_filter", "unknown")), int(held.get("display_offset_s", 0)) * _SECOND
    )


def set_traits(connection: sqlite3.Connection, found: ServiceTraits) -> None:
    """Remember the service's habits."""
    with immediate(connection):
        connection.executemany(
            "INSERT INTO service_traits (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [("date_filter", found.date_filter), ("display_offset_s", str(found.display_offset // _SECOND))],
        )


def run_clock(connection: sqlite3.Connection) -> RunClock:
    """The clock of the times of runs, as exactly as it is known."""
    held = dict(connection.execute("SELECT name, value FROM budget WHERE name LIKE 'clock_%'").fetchall())
    found = traits(connection)
    ahead = timedelta(seconds=held.get("clock_ahead_s", 0.0)) + found.display_offset
    # Where dates cannot be asked for, nothing shows that the times are not local ones.
    return RunClock(ahead, is_known=bool(held.get("clock_heard")) and found.date_filter in {"created", "updated"})


def note(connection: sqlite3.Connection, habit: Habit, at: datetime) -> None:
    """Remember when the service was seen with a habit."""
    with immediate(connection):
        connection.execute(
            "INSERT INTO service_traits (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (habit, str(to_us(at))),
        )


def has_habit(connection: sqlite3.Connection, habit: Habit, now: datetime) -> bool:
    """Whether the service was seen with the habit within a day: it may have been mended."""
    row = connection.execute("SELECT value FROM service_traits WHERE name = ?", (habit,)).fetchone()
    return row is not None and abs(now - from_us(int(row[0]))) < REMEMBERED


def run_clock_ahead(connection: sqlite3.Connection) -> timedelta:
    """How far the times of runs are ahead of our clock: the service's clock may be off, or show local time."""
    held = connection.execute("SELECT value FROM budget WHERE name = 'clock_ahead_s'").fetchone()
    return BudgetState(clock_ahead_s=held[0] if held else 0.0).clock_ahead + traits(connection).display_offset


def final_statuses(connection: sqlite3.Connection) -> frozenset[str]:
    """The statuses that end a turn: those of the spec, and those that were learnt."""
    learnt = connection.execute("SELECT status FROM statuses WHERE is_final").fetchall()
    return FINAL_STATUSES | {status for (status,) in learnt}


def unsettled_statuses(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The statuses of which it is not known whether they are final; those of most runs, `UNSETTLED` at most."""
    found = connection.execute(
        f"SELECT status FROM statuses WHERE NOT is_final AND runs > 0 AND status NOT IN ({_SPEC})"
        " ORDER BY runs DESC, status LIMIT ?",
        (UNSETTLED,),
    )
    return tuple(status for (status,) in found.fetchall())


def learn_left(connection: sqlite3.Connection, statuses: Collection[str]) -> None:
    """Remember that runs left these statuses, each as often as it is named; one that many leave is not final."""
    with immediate(connection):
        before = final_statuses(connection)
        connection.executemany(
            "UPDATE statuses SET left_by = left_by + 1, is_final = is_final AND 10 * (left_by + 1) < runs"
            " WHERE status = ?",
            [(sqlite_text(status),) for status in statuses],
        )
        for status in before - final_statuses(connection):
            connection.execute(_SETTLE, {"status": status, "is_final": 0})


def learn_final(connection: sqlite3.Connection, status: str, unchanged_since: datetime | None = None) -> bool:
    """Remember that this status is final, unless runs were seen leaving it; whether that is new.

    With a time: only if each of its runs was last updated before then.
    """
    bound = {"status": sqlite_text(status), "since": None if unchanged_since is None else to_us(unchanged_since)}
    with immediate(connection):
        learnt = connection.execute(
            "UPDATE statuses SET is_final = 1 WHERE status = :status AND NOT is_final AND 10 * left_by < runs"
            " AND (:since IS NULL OR NOT EXISTS"
            f" (SELECT 1 FROM runs WHERE {ACTIVE_SQL} AND status = :status"
            " AND (updated_us >= :since OR updated_us = :no_time)))",
            {**bound, "no_time": NO_TIME_US},
        )
        if learnt.rowcount:
            connection.execute(_SETTLE, {"status": sqlite_text(status), "is_final": 1})
    return learnt.rowcount > 0
