"""What the polls say of our own link, subject by subject."""

import sqlite3
from typing import Final, get_args

from storage.database import immediate
from storage.records import LinkState, PollOutcome
from storage.records.link import Subject
from storage.storable import storable
from storage.times import from_us_or_none, to_us

_SUCCEEDED: Final = """
INSERT INTO links (subject, last_ok_us, failures, in_lab) VALUES (:subject, :at_us, 0, :in_lab)
ON CONFLICT (subject) DO UPDATE SET
    last_ok_us = excluded.last_ok_us, failing_since_us = NULL, failures = 0, error_kind = NULL, error_message = NULL,
    in_lab = excluded.in_lab
"""

_FAILED: Final = """
INSERT INTO links (subject, failing_since_us, failures, error_kind, error_message, in_lab)
VALUES (:subject, :at_us, 1, :error_kind, :error_message, :in_lab)
ON CONFLICT (subject) DO UPDATE SET
    failing_since_us = coalesce(failing_since_us, excluded.failing_since_us), failures = failures + 1,
    error_kind = excluded.error_kind, error_message = excluded.error_message, in_lab = excluded.in_lab
"""


def record(connection: sqlite3.Connection, outcome: PollOutcome) -> LinkState:
    """Keep how a poll went; the state of the link after it."""
    # Only now: what is shown first reads links from here, and needs no log.
    from storage.cache import activity

    message = None if outcome.error_message is None else storable(outcome.error_message)
    bound = {
        "subject": outcome.subject,
        "at_us": to_us(outcome.at),
        "error_kind": outcome.error_kind,
        "error_message": message,
        "in_lab": int(outcome.in_lab),
    }
    with immediate(connection):
        activity.note(connection, outcome)
        connection.execute(_SUCCEEDED if outcome.error_kind is None else _FAILED, bound)
        return _link(connection, outcome.subject)


def links(connection: sqlite3.Connection) -> tuple[LinkState, ...]:
    """The state of the link for each subject, never polled ones included."""
    subjects: tuple[Subject, ...] = get_args(Subject)
    return tuple(_link(connection, subject) for subject in subjects)


def _link(connection: sqlite3.Connection, subject: Subject) -> LinkState:
    row = connection.execute(
        "SELECT last_ok_us, failing_since_us, failures, error_kind, error_message, in_lab FROM links WHERE subject = ?",
        (subject,),
    ).fetchone()
    if row is None:
        return LinkState(subject)
    last_ok_us, failing_since_us, failures, error_kind, error_message, in_lab = row
    return LinkState(
        subject=subject,
        last_ok_at=from_us_or_none(last_ok_us),
        failing_since=from_us_or_none(failing_since_us),
        failures=failures,
        error_kind=error_kind,
        error_message=error_message,
        in_lab=bool(in_lab),
    )
