"""Alerts to report, each route's reports, undelivered messages, and users' marks."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import asdict, replace

from storage.claims import Claims
from storage.records.alert import Alert, Delivery, Message, Plan, ReportedProblem, Settled
from storage.records.inbox import Mark
from storage.values import from_us, from_us_or_none, sqlite_text, to_us

KEPT: Final = timedelta(days=90)
"""How long an alert is remembered as reported, and a delivery is kept."""
CLAIMS: Final = Claims("deliveries", "id", "outcome IS NULL")
MAX_WAITING: Final = 5_000
"""How many alerts are handled at one time, oldest first."""
MARK_KEPT: Final = timedelta(days=400)
"""How long a mark is kept, unless it mutes its item."""
LEVELS: Final = 20
_MARK: Final = "done_us, snoozed_us, muted, seen_us"
_ALERT: Final = "key, grp, source, route, level, title, body, at_us, about_json, entered_us"
_PROBLEM: Final = "grp, source, route, level, title, about_json, first_us, last_us, newest_us, count"
_DELIVERY: Final = "id, message_json, made_us, attempts, outcome, error, origin"

_FORGET_ALERTS: Final = "DELETE FROM alerts WHERE entered_us < ? AND outcome IS NOT NULL"
_ENTER: Final = f"INSERT INTO alerts ({_ALERT}, outcome) VALUES ({', '.join('?' * 11)}) ON CONFLICT (key)"


def enter_alerts(connection: sqlite3.Connection, alerts: Sequence[Alert], now: datetime) -> None:
    """Enter alerts, each once, however often it is noticed."""
    connection.executemany(f"{_ENTER} DO NOTHING", [_row(alert, now) for alert in alerts])


def claim_alerts(
    connection: sqlite3.Connection, alerts: Sequence[Alert], now: datetime, *, apart: bool
) -> frozenset[str]:
    """Claim alerts for a console; return the keys of those that neither a bot nor another console has reported.

    A console reports the end of a state if a console reported its beginning. `apart`: regardless of bots.
    """
    won, here = set[str](), "console:" if apart else ""
    connection.execute(_FORGET_ALERTS, (to_us(now - KEPT),))
    for alert in alerts:
        begun = [f"{here}{key}" for key in alert.after]
        if begun and not any(_outcome(connection, key) == "shown" for key in begun):
            continue
        row = _row(replace(alert, key=f"{here}{alert.key}"), now, "shown")
        claimed = connection.execute(f"{_ENTER} DO UPDATE SET outcome = 'shown' WHERE outcome IS NULL", row)
        if claimed.rowcount == 1:
            won.add(alert.key)
    return frozenset(won)


def reported_alerts(connection: sqlite3.Connection, keys: Sequence[str], *, apart: bool) -> frozenset[str]:
    """The keys whose alerts have an outcome: sent, shown or suppressed."""
    here = "console:" if apart else ""
    return frozenset(key for key in keys if _outcome(connection, f"{here}{key}") is not None)


def _outcome(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT outcome FROM alerts WHERE key = ?", (sqlite_text(key),)).fetchone()
    return None if row is None else row[0]


def _row(alert: Alert, now: datetime, outcome: Settled | None = None) -> tuple[str | int | None, ...]:
    texts = map(sqlite_text, (alert.key, alert.group, alert.source, alert.route, alert.level, alert.title, alert.body))
    return *texts, to_us(alert.at), sqlite_text(json.dumps(dict(alert.about))), to_us(now), outcome


def waiting_alerts(connection: sqlite3.Connection) -> tuple[Alert, ...]:
    """Open alerts, oldest first."""
    query = f"SELECT {_ALERT} FROM alerts WHERE outcome IS NULL ORDER BY entered_us, key LIMIT ?"
    alerts = []
    for key, *named, body, at_us, about, entered_us in connection.execute(query, (MAX_WAITING,)).fetchall():
        group, source, route, level, title = named
        subject = (group, source, route, level, title, json.loads(about))
        at, entered_at = from_us(at_us), from_us(entered_us)
        alerts.append(Alert(*subject, key=key, body=body, at=at, entered_at=entered_at))
    return tuple(alerts)


def reported_problems(connection: sqlite3.Connection) -> tuple[ReportedProblem, ...]:
    """Reported problems that are not over."""
    problems = []
    for *subject, about, first_us, last_us, newest_us, count in connection.execute(
        f"SELECT {_PROBLEM} FROM told ORDER BY first_us, grp"
    ).fetchall():
        first, last, newest = map(from_us, (first_us, last_us, newest_us))
        subject.append(json.loads(about))
        problems.append(ReportedProblem(*subject, first_at=first, last_at=last, newest_at=newest, count=count))
    return tuple(problems)


def last_made(connection: sqlite3.Connection) -> dict[tuple[str, str], tuple[datetime, bool]]:
    """By route and batch: when the last message was created, and whether one is still undelivered."""
    query = "SELECT route, batch, max(made_us), max(outcome IS NULL) FROM deliveries WHERE origin IS NULL GROUP BY 1, 2"
    rows = connection.execute(query).fetchall()
    return {(route, batch): (from_us(made_us), bool(is_open)) for route, batch, made_us, is_open in rows}


def newest_delivery(connection: sqlite3.Connection) -> int:
    """The number of the newest delivery; 0 without deliveries."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM deliveries").fetchone()[0])


def apply_plan(connection: sqlite3.Connection, plan: Plan, now: datetime, basis: int) -> bool:
    """Carry out a plan in one transaction: no alert is settled without its message, and none is sent twice.

    `basis` is the newest delivery from before the plan. Returns False, and does nothing, if another process made one
    since, or settled an alert.
    """
    waiting = {key for (key,) in connection.execute("SELECT key FROM alerts WHERE outcome IS NULL")}
    if newest_delivery(connection) != basis or not waiting.issuperset(map(sqlite_text, plan.settled)):
        return False
    for message in plan.messages:
        _insert(connection, message, now)
    settled = [(outcome, sqlite_text(key)) for key, outcome in plan.settled.items()]
    connection.executemany("UPDATE alerts SET outcome = ? WHERE key = ?", settled)
    for problem in plan.reported:
        values = (
            *map(sqlite_text, (problem.group, problem.source, problem.route, problem.level, problem.title)),
            *(sqlite_text(json.dumps(dict(problem.about))), to_us(problem.first_at), to_us(problem.last_at)),
            *(to_us(problem.newest_at), problem.count),
        )
        connection.execute(f"INSERT OR REPLACE INTO told ({_PROBLEM}) VALUES ({', '.join('?' * 10)})", values)
    connection.executemany(
        "DELETE FROM told WHERE grp = ? AND source = ? AND route = ?",
        [tuple(map(sqlite_text, (problem.group, problem.source, problem.route))) for problem in plan.over],
    )
    return True


def _insert(connection: sqlite3.Connection, message: Message, now: datetime, origin: int | None = None) -> None:
    text = json.dumps(asdict(message))
    connection.execute(
        "INSERT INTO deliveries (route, batch, message_json, made_us, due_us, attempts, origin)"
        " VALUES (?, ?, ?, ?, ?, 0, ?)",
        (sqlite_text(message.route), sqlite_text(message.batch), sqlite_text(text), to_us(now), to_us(now), origin),
    )


def release_orphans(connection: sqlite3.Connection, now: datetime) -> None:
    """Make an ended process's deliveries due at once: they may not have arrived."""
    change = "UPDATE deliveries SET due_us = ?, owner_json = NULL WHERE id = ?"
    connection.executemany(change, [(to_us(now), number) for number in CLAIMS.abandoned(connection, now)])


def due_deliveries(connection: sqlite3.Connection, now: datetime) -> tuple[Delivery, ...]:
    """Due deliveries, oldest first."""
    query = f"SELECT {_DELIVERY} FROM deliveries WHERE outcome IS NULL AND due_us <= ? ORDER BY id"
    return tuple(map(_delivery, connection.execute(query, (to_us(now),)).fetchall()))


def claim_delivery(connection: sqlite3.Connection, delivery: Delivery, now: datetime, until: datetime) -> bool:
    """Claim an attempt, so that no other process makes it before `until`; return whether that succeeded."""
    expected = {"attempts": delivery.attempts, "outcome": None}
    change = {"attempts": delivery.attempts + 1, "due_us": to_us(until)}
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
    connection.execute(
        "UPDATE deliveries SET outcome = ?, settled_us = ?, error = ?, due_us = ?, owner_json = NULL WHERE id = ?",
        (
            *(outcome, None if outcome is None else to_us(now), sqlite_text(error)),
            *(to_us(due or now), delivery.delivery_id),
        ),
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
    return tuple(map(_delivery, connection.execute(query, (outcome, outcome, limit)).fetchall()))


def delivery(connection: sqlite3.Connection, number: int) -> Delivery | None:
    """The delivery with this number."""
    row = connection.execute(f"SELECT {_DELIVERY} FROM deliveries WHERE id = ?", (number,)).fetchone()
    return None if row is None else _delivery(row)


def delivery_counts(connection: sqlite3.Connection) -> dict[tuple[str, ...], int]:
    """The number of deliveries by route and outcome; `waiting`: on their way."""
    query = "SELECT route, coalesce(outcome, 'waiting'), count(*) FROM deliveries GROUP BY 1, 2"
    return {(route, outcome): count for route, outcome, count in connection.execute(query).fetchall()}


def forget_reported(connection: sqlite3.Connection, now: datetime) -> None:
    """Delete settled alerts, and reported ones without an end, when they are older than `KEPT`."""
    before = to_us(now - KEPT)
    connection.execute(_FORGET_ALERTS, (before,))
    connection.execute("DELETE FROM deliveries WHERE made_us < ? AND outcome IS NOT NULL", (before,))
    connection.execute("DELETE FROM told WHERE last_us < ?", (before,))


def _delivery(row: tuple[Any, ...]) -> Delivery:
    number, text, made_us, attempts, outcome, error, origin = row
    values: Mapping[str, Any] = json.loads(text)
    message = Message(**{**values, "groups": tuple(values["groups"])})
    return Delivery(number, message, from_us(made_us), attempts, outcome, error or "", origin)


def marks(connection: sqlite3.Connection) -> dict[str, Mark]:
    """Every mark, keyed by item."""
    rows = connection.execute(f"SELECT key, {_MARK} FROM inbox").fetchall()
    return {
        key: Mark(from_us_or_none(done), from_us_or_none(snoozed), bool(muted), from_us_or_none(seen))
        for key, done, snoozed, muted, seen in rows
    }


def mark(connection: sqlite3.Connection, marked: Mapping[str, Mark], at: datetime) -> None:
    """Mark items, and keep their earlier marks for `undo`."""
    (last,) = connection.execute("SELECT coalesce(max(step), 0) FROM inbox_undo").fetchone()
    connection.execute("DELETE FROM inbox_undo WHERE step <= ?", (last + 1 - LEVELS,))
    connection.execute("DELETE FROM inbox WHERE marked_us < ? AND NOT muted", (to_us(at - MARK_KEPT),))
    for key, new in marked.items():
        name = sqlite_text(key)
        before = connection.execute(f"SELECT {_MARK} FROM inbox WHERE key = ?", (name,)).fetchone()
        values = (last + 1, name, *(before or (None, None, 0, None)))
        connection.execute(f"INSERT INTO inbox_undo (step, key, {_MARK}) VALUES (?, ?, ?, ?, ?, ?)", values)
        done, snoozed, seen = (
            None if until is None else to_us(until) for until in (new.done_until, new.snoozed_until, new.seen_until)
        )
        _set(connection, name, (done, snoozed, int(new.is_muted), seen), at)


def undo(connection: sqlite3.Connection, at: datetime) -> tuple[str, ...]:
    """Undo the last change that was not undone yet; return its keys."""
    rows = connection.execute(
        f"DELETE FROM inbox_undo WHERE step = (SELECT max(step) FROM inbox_undo) RETURNING key, {_MARK}"
    ).fetchall()
    for key, *before in rows:
        _set(connection, key, tuple(before), at)
    return tuple(key for key, *_ in rows)


def _set(connection: sqlite3.Connection, key: str, values: tuple[int | None, ...], at: datetime) -> None:
    query = f"INSERT OR REPLACE INTO inbox (key, {_MARK}, marked_us) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(query, (key, *values, to_us(at)))
