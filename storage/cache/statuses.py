"""The final statuses: those of the spec, those whose name says so, and those of which there are very many runs."""

import sqlite3
from typing import Final

from storage.cache.run_sql import severity_sql
from storage.cache.work_time import took_sql
from storage.database import immediate
from storage.records import FINAL_STATUSES, STATUS_ORDER
from storage.values import sqlite_text

UNSETTLED: Final = 10
_SPEC: Final = ", ".join(f"'{status}'" for status in STATUS_ORDER)
_SETTLE: Final = f"""
UPDATE runs SET is_final = 1, took_us = {took_sql("1")}, severity = {severity_sql("1")}
WHERE status = :status AND NOT is_final
"""


def final_statuses(connection: sqlite3.Connection) -> frozenset[str]:
    """The statuses that end a turn."""
    others = connection.execute("SELECT status FROM statuses WHERE is_final").fetchall()
    return FINAL_STATUSES | {status for (status,) in others}


def unsettled_statuses(connection: sqlite3.Connection) -> tuple[str, ...]:
    """The statuses of which it is not known whether they are final, those with most runs first; at most `UNSETTLED`."""
    found = connection.execute(
        f"SELECT status FROM statuses WHERE NOT is_final AND runs > 0 AND status NOT IN ({_SPEC})"
        " ORDER BY runs DESC, status LIMIT ?",
        (UNSETTLED,),
    )
    return tuple(status for (status,) in found.fetchall())


def mark_final(connection: sqlite3.Connection, status: str) -> None:
    """Count a status as final from now on."""
    bound = {"status": sqlite_text(status)}
    with immediate(connection):
        connection.execute("UPDATE statuses SET is_final = 1 WHERE status = :status", bound)
        connection.execute(_SETTLE, bound)
