"""Polls: the state of the link, a log of outcomes, and the service's known limits and clock."""

import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, get_args

from msgspec.structs import asdict

from storage.cache.coverage import load_note
from storage.database import execute
from storage.records import LinkState, PollOutcome, RunClock
from storage.records.activity import BudgetState, PollSpan, Subject
from storage.values import EPOCH, NO_TIME_US, bound, records

MAX_POLLS_KEPT: Final = 5_000
"""The newest entries that are kept: months of an ordinary link, days of one that changes with every poll."""
MAX_GAP: Final = timedelta(minutes=30)
"""Polls further apart than this become two entries, since the time between them is unknown."""
MESSAGE_CAP: Final = 2_000
_EXTEND: Final = """
UPDATE poll_log SET last_us = max(last_us, :at), polls = polls + 1, error_message = :logged_message
WHERE id = (SELECT max(id) FROM poll_log WHERE subject = :subject)
    AND error_kind IS :error_kind AND http_status IS :http_status AND :at - last_us <= :gap_us
"""
_BEGIN: Final = """
INSERT INTO poll_log (subject, error_kind, error_message, http_status, first_us, last_us, polls)
VALUES (:subject, :error_kind, :logged_message, :http_status, :at, :at, 1)
"""

# With the newest creation held then: runs that were created later were not there yet.
_SUCCEEDED: Final = f"""
INSERT INTO links (subject, last_ok_us, failures, in_lab, dropped, newest_us) VALUES
    (:subject, :at, 0, :in_lab, :dropped, (SELECT coalesce(max(newest_us), {NO_TIME_US}) FROM repositories))
ON CONFLICT (subject) DO UPDATE SET
    last_ok_us = excluded.last_ok_us, failing_since_us = NULL, failures = 0, error_kind = NULL, error_message = NULL,
    in_lab = excluded.in_lab, dropped = excluded.dropped, newest_us = excluded.newest_us
"""

_FAILED: Final = """
INSERT INTO links (subject, failing_since_us, failures, error_kind, error_message, in_lab)
VALUES (:subject, :at, 1, :error_kind, :error_message, :in_lab)
ON CONFLICT (subject) DO UPDATE SET
    failing_since_us = coalesce(failing_since_us, excluded.failing_since_us), failures = failures + 1,
    error_kind = excluded.error_kind, error_message = excluded.error_message, in_lab = excluded.in_lab
"""


def record(connection: sqlite3.Connection, outcome: PollOutcome) -> LinkState:
    """Record a poll; return the link's state after it, which a failure of this process alone does not change."""
    values = {name: bound(value) for name, value in asdict(outcome).items()}
    logged_message = outcome.error_message and outcome.error_message[:MESSAGE_CAP]
    values |= {"gap_us": MAX_GAP // timedelta(microseconds=1), "logged_message": bound(logged_message)}
    if connection.execute(_EXTEND, values).rowcount == 0:
        connection.execute(_BEGIN, values)
        connection.execute("DELETE FROM poll_log WHERE id <= (SELECT max(id) FROM poll_log) - ?", (MAX_POLLS_KEPT,))
    if not outcome.is_own:
        connection.execute(_SUCCEEDED if outcome.error_kind is None else _FAILED, values)
    return next(link for link in links(connection) if link.subject == outcome.subject)


def links(connection: sqlite3.Connection) -> tuple[LinkState, ...]:
    """The state of the link for each subject, never polled ones included."""
    columns = "subject, last_ok_us, failing_since_us, failures, error_kind, error_message, in_lab, dropped"
    links = {subject: LinkState(subject) for subject in get_args(Subject)}
    rows = connection.execute(f"SELECT {columns} FROM links")
    links |= {link.subject: link for link in records(LinkState, rows)}
    return tuple(links.values())


def budget(connection: sqlite3.Connection) -> BudgetState:
    """The service's known limits, health and clock; all processes of a data folder share them."""
    return BudgetState(**dict(connection.execute("SELECT name, value FROM budget").fetchall()))


def change_budget(connection: sqlite3.Connection, change: Callable[[BudgetState], BudgetState]) -> BudgetState:
    """Change it in one transaction; return it as it is then."""
    before = budget(connection)
    after = change(before)
    changed = asdict(after).items() - asdict(before).items()
    connection.executemany("INSERT OR REPLACE INTO budget (name, value) VALUES (?, ?)", list(changed))
    return after


def run_clock(connection: sqlite3.Connection) -> RunClock:
    state = budget(connection)
    # If the list is out of order, its times may be local times.
    is_known = bool(state.clock_heard) and load_note(connection, "out_of_order") is None
    return RunClock(timedelta(seconds=state.clock_ahead_s), is_known=is_known)


def polls(
    connection: sqlite3.Connection, limit: int, subject: Subject | None = None, since: datetime = EPOCH
) -> tuple[PollSpan, ...]:
    """The newest polls of a subject, or of all, that ended at or after `since`; by when they began."""
    sql = (
        "SELECT id, subject, first_us, last_us, polls, error_kind, error_message, http_status FROM poll_log"
        " WHERE subject = coalesce(?, subject) AND last_us >= ? ORDER BY id DESC LIMIT ?"
    )
    return records(PollSpan, execute(connection, sql, subject, since, limit))
