"""The final statuses: those of the spec, and those learnt because runs stay in them."""

import sqlite3
from collections.abc import Collection
from datetime import datetime
from typing import Final

from storage.cache.run_sql import ACTIVE_SQL, severity_sql
from storage.cache.work_time import took_sql
from storage.database import immediate
from storage.records import FINAL_STATUSES, STATUS_ORDER
from storage.values import NO_TIME_US, sqlite_text, to_us

UNSETTLED: Final = 10
_SPEC: Final = ", ".join(f"'{status}'" for status in STATUS_ORDER)
_SETTLE: Final = f"""
UPDATE runs SET is_final = :is_final, took_us = {took_sql(":is_final")}, severity = {severity_sql(":is_final")}
WHERE status = :status AND is_final <> :is_final
"""


def final_statuses(connection: sqlite3.Connection) -> frozenset[str]:
    """The statuses that end a turn: those of the spec, and learnt ones."""
    learnt = connection.execute("SELECT status FROM statuses WHERE is_final").fetchall()
    return FINAL_STATUSES | {status for (status,) in learnt}


def unsettled_statuses(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The statuses of which it is not known whether they are final, those with most runs first; at most `UNSETTLED`."""
    found = connection.execute(
        f"SELECT status FROM statuses WHERE NOT is_final AND runs > 0 AND status NOT IN ({_SPEC})"
        " ORDER BY runs DESC, status LIMIT ?",
        (UNSETTLED,),
    )
    return tuple(status for (status,) in found.fetchall())


def learn_left(connection: sqlite3.Connection, statuses: Collection[str]) -> None:
    """Count how often runs left these statuses; a status that many runs leave is not final."""
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
    """Remember that this status is final, unless runs were seen leaving it; return whether that is new.

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
