"""Alerts to report, each route's reports, undelivered messages, and users' marks."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import asdict, astuple, replace

from storage.claims import Claims
from storage.database import column, execute, scalar
from storage.records.alert import Alert, Delivery, Message, Plan, ReportedProblem, Settled
from storage.records.inbox import Mark
from storage.values import Value, bound, from_us, record_of, records, sqlite_text, to_us

KEPT: Final = timedelta(days=90)
"""How long an alert is remembered as reported, and a delivery is kept."""
CLAIMS: Final = Claims("deliveries", "id", "outcome IS NULL")
MAX_WAITING: Final = 5_000
"""How many alerts are handled at one time, oldest first."""
MARK_KEPT: Final = timedelta(days=400)
"""How long a mark is kept, unless it mutes its item."""
LEVELS: Final = 20
_MARK: Final = "done_us, snoozed_us, muted, seen_us"
_SET: Final = f"INSERT OR REPLACE INTO inbox (key, {_MARK}, marked_us) VALUES (?, ?, ?, ?, ?, ?)"
_SUBJECT: Final = "grp, source, route, level, title, about_json"
_ALERT: Final = f"{_SUBJECT}, key, body, at_us, entered_us"
_PROBLEM: Final = f"{_SUBJECT}, first_us, last_us, newest_us, count"
_DELIVERY: Final = "id, message_json, made_us, attempts, outcome, coalesce(error, ''), origin"
_OUTCOME: Final = "SELECT outcome FROM alerts WHERE key = ?"
_FORGET_ALERTS: Final = "DELETE FROM alerts WHERE entered_us < ? AND outcome IS NOT NULL"
_ENTER: Final = f"INSERT INTO alerts ({_ALERT}, outcome) VALUES ({', '.join('?' * 11)}) ON CONFLICT (key)"


def enter_alerts(connection: sqlite3.Connection, alerts: Sequence[Alert], now: datetime) -> None:
    """Enter alerts, each once, however often it is noticed."""
    connection.executemany(f"{_ENTER} DO NOTHING", [tuple(map(bound, _row(alert, now))) for alert in alerts])


def claim_alerts(
    connection: sqlite3.Connection, alerts: Sequence[Alert], now: datetime, *, apart: bool
) -> frozenset[str]:
    """Claim alerts for a console; return the keys of those that neither a bot nor another console has reported.

    A console reports the end of a state if a console reported its beginning. `apart`: regardless of bots.
    """
    won, prefix = set[str](), "console:" if apart else ""
    execute(connection, _FORGET_ALERTS, now - KEPT)
    for alert in alerts:
        begun = [f"{prefix}{key}" for key in alert.after]
        if begun and not any(scalar(connection, _OUTCOME, key) == "shown" for key in begun):
            continue
        row = _row(replace(alert, key=f"{prefix}{alert.key}"), now, "shown")
        if execute(connection, f"{_ENTER} DO UPDATE SET outcome = 'shown' WHERE outcome IS NULL", *row).rowcount == 1:
            won.add(alert.key)
    return frozenset(won)


def reported_alerts(connection: sqlite3.Connection, keys: Sequence[str], *, apart: bool) -> frozenset[str]:
    """The keys whose alerts have an outcome: sent, shown or suppressed."""
    prefix = "console:" if apart else ""
    return frozenset(key for key in keys if scalar(connection, _OUTCOME, f"{prefix}{key}") is not None)


def _row(alert: Alert, now: datetime, outcome: Settled | None = None) -> tuple[Value, ...]:
    return (*astuple(replace(alert, entered_at=now))[: _ALERT.count(",") + 1], outcome)


def waiting_alerts(connection: sqlite3.Connection) -> tuple[Alert, ...]:
    """Open alerts, oldest first."""
    query = f"SELECT {_ALERT} FROM alerts WHERE outcome IS NULL ORDER BY entered_us, key LIMIT ?"
    return records(Alert, execute(connection, query, MAX_WAITING))


def reported_problems(connection: sqlite3.Connection) -> tuple[ReportedProblem, ...]:
    """Reported problems that are not over."""
    query = f"SELECT {_PROBLEM} FROM reported_problems ORDER BY first_us, grp"
    return records(ReportedProblem, connection.execute(query))


def last_made(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[datetime, bool]]:
    """By route and batch: when the last message was created, and whether one is still undelivered."""
    query = "SELECT route, batch, max(made_us), max(outcome IS NULL) FROM deliveries WHERE origin IS NULL GROUP BY 1, 2"
    rows = connection.execute(query).fetchall()
    return {(route, batch): (from_us(made_us), bool(is_open)) for route, batch, made_us, is_open in rows}


def newest_delivery(connection: sqlite3.Connection) -> int:
    """The number of the newest delivery; 0 without deliveries."""
    return int(scalar(connection, "SELECT coalesce(max(id), 0) FROM deliveries"))


def apply_plan(connection: sqlite3.Connection, plan: Plan, now: datetime, basis: int) -> bool:
    """Carry out a plan in one transaction: no alert is settled without its message, and none is sent twice.

    `basis` is the newest delivery from before the plan. Returns False, and does nothing, if another process made one
    since, or settled an alert.
    """
    waiting = {*column(connection, "SELECT key FROM alerts WHERE outcome IS NULL")}
    if newest_delivery(connection) != basis or not waiting.issuperset(map(sqlite_text, plan.settled)):
        return False
    for message in plan.messages:
        _insert(connection, message, now)
    settled = [(outcome, sqlite_text(key)) for key, outcome in plan.settled.items()]
    connection.executemany("UPDATE alerts SET outcome = ? WHERE key = ?", settled)
    for problem in plan.reported:
        sql = f"INSERT OR REPLACE INTO reported_problems ({_PROBLEM}) VALUES ({', '.join('?' * 10)})"
        execute(connection, sql, *astuple(problem))
    for problem in plan.over:
        execute(connection, "DELETE FROM reported_problems WHERE grp = ? AND source = ? AND route = ?", *problem.key)
    return True


def _insert(connection: sqlite3.Connection, message: Message, now: datetime, origin: int | None = None) -> None:
    columns = "route, batch, message_json, made_us, due_us, attempts, origin"
    sql = f"INSERT INTO deliveries ({columns}) VALUES (?, ?, ?, ?, ?, 0, ?)"
    execute(connection, sql, message.route, message.batch, asdict(message), now, now, origin)


def release_orphans(connection: sqlite3.Connection, now: datetime) -> None:
    """Make an ended process's deliveries due at once: they may not have arrived."""
    change = "UPDATE deliveries SET due_us = ?, owner_json = NULL WHERE id = ?"
    connection.executemany(change, [(to_us(now), number) for number in CLAIMS.list_abandoned(connection, now)])


def due_deliveries(connection: sqlite3.Connection, now: datetime) -> tuple[Delivery, ...]:
    """Due deliveries, oldest first."""
    query = f"SELECT {_DELIVERY} FROM deliveries WHERE outcome IS NULL AND due_us <= ? ORDER BY id"
    return records(Delivery, execute(connection, query, now))


def claim_delivery(connection: sqlite3.Connection, delivery: Delivery, now: datetime, until: datetime) -> bool:
    """Claim an attempt, so that no other process makes it before `until`; return whether that succeeded."""
    expected = {"attempts": delivery.attempts, "outcome": None}
    change: dict[str, Value] = {"attempts": delivery.attempts + 1, "due_us": until}
    return CLAIMS.claim(connection, delivery.delivery_id, now, expected=expected, change=change)


def settle_delivery(
    connection: sqlite3.Connection,
    delivery: Delivery,
    outcome: str | None,
    now: datetime,
    *,
    error: str = "",
    due: datetime | None = None,
    fallback: str = "",
) -> None:
    """Store an attempt's outcome: settled, or due again; with a fallback it continues over another route."""
    execute(
        connection,
        "UPDATE deliveries SET outcome = ?, settled_us = ?, error = ?, due_us = ?, owner_json = NULL WHERE id = ?",
        *(outcome, None if outcome is None else now, error, due or now, delivery.delivery_id),
    )
    if fallback:
        message = delivery.message
        body = f"{message.body} · route {message.route} did not take it"
        _insert(connection, replace(message, route=fallback, body=body), now, delivery.number)


def recent_deliveries(
    connection: sqlite3.Connection, limit: int = 100, outcome: str | None = None
) -> tuple[Delivery, ...]:
    """The newest deliveries, with one outcome if one is given."""
    query = f"SELECT {_DELIVERY} FROM deliveries WHERE ? IS NULL OR outcome = ? ORDER BY id DESC LIMIT ?"
    return records(Delivery, execute(connection, query, outcome, outcome, limit))


def delivery(connection: sqlite3.Connection, number: int) -> Delivery | None:
    rows = execute(connection, f"SELECT {_DELIVERY} FROM deliveries WHERE id = ?", number)
    return next(iter(records(Delivery, rows)), None)


def forget_reported(connection: sqlite3.Connection, now: datetime) -> None:
    """Delete settled alerts, and reported ones without an end, when they are older than `KEPT`."""
    deliveries = "DELETE FROM deliveries WHERE made_us < ? AND outcome IS NOT NULL"
    for sql in (_FORGET_ALERTS, deliveries, "DELETE FROM reported_problems WHERE last_us < ?"):
        execute(connection, sql, now - KEPT)


def marks(connection: sqlite3.Connection) -> dict[str, Mark]:
    rows = connection.execute(f"SELECT key, {_MARK} FROM inbox").fetchall()
    return {key: record_of(Mark, values) for key, *values in rows}


def mark(connection: sqlite3.Connection, marked: Mapping[str, Mark], at: datetime) -> None:
    """Mark items, and keep their earlier marks for `undo`."""
    last = scalar(connection, "SELECT coalesce(max(step), 0) FROM inbox_undo")
    execute(connection, "DELETE FROM inbox_undo WHERE step <= ?", last + 1 - LEVELS)
    execute(connection, "DELETE FROM inbox WHERE marked_us < ? AND NOT muted", at - MARK_KEPT)
    for key, new in marked.items():
        before = execute(connection, f"SELECT {_MARK} FROM inbox WHERE key = ?", key).fetchone()
        sql = f"INSERT INTO inbox_undo (step, key, {_MARK}) VALUES (?, ?, ?, ?, ?, ?)"
        execute(connection, sql, last + 1, key, *(before or astuple(Mark())))
        execute(connection, _SET, key, *astuple(new), at)


def undo(connection: sqlite3.Connection, at: datetime) -> tuple[str, ...]:
    """Undo the last change that was not undone yet; return its keys."""
    last = "(SELECT max(step) FROM inbox_undo)"
    rows = connection.execute(f"DELETE FROM inbox_undo WHERE step = {last} RETURNING key, {_MARK}").fetchall()
    for row in rows:
        execute(connection, _SET, *row, at)
    return tuple(key for key, *_ in rows)
