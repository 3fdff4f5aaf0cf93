"""The observed health of the code hosts: now, since when, and in stretches of one status over time."""

import sqlite3
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from storage.database import immediate, snapshot
from storage.records import HealthChange, HealthReport, HealthSample, PlatformHealth
from storage.records.health import HealthSpan
from storage.values import from_us, sqlite_text, to_us

HISTORY_CAP: Final = 50
"""How many changes are returned with each platform."""

LONGEST_GAP: Final = timedelta(minutes=10)
"""Samples further apart do not cover the time between them."""

KEPT: Final = timedelta(days=35)
"""How long spans are kept: longer than the longest window that is shown."""

_Span = tuple[str, str, int, int]
"""Platform, status, start and end in microseconds."""

_DAY_US: Final = timedelta(days=1) // timedelta(microseconds=1)
_KEEP: Final = """
INSERT INTO platforms (platform, status, host, host_group, raw_json, since_us, checked_us, connected)
VALUES (:platform, :status, :host, :group, :raw_json, :at_us, :at_us, 1)
ON CONFLICT (platform) DO UPDATE SET
    since_us = CASE WHEN connected AND status = excluded.status THEN since_us ELSE excluded.since_us END,
    status = excluded.status, host = excluded.host, host_group = excluded.host_group,
    raw_json = excluded.raw_json, checked_us = excluded.checked_us, connected = 1
"""


def store(connection: sqlite3.Connection, report: HealthReport, at: datetime) -> tuple[HealthChange, ...]:
    """Store an answer to the health request; return the platforms whose status changed, by name.

    A platform that the report omits is no longer connected: a change to None.
    """
    at_us = to_us(at)
    with immediate(connection):
        before = dict(connection.execute("SELECT platform, status FROM platforms WHERE connected").fetchall())
        for sample in report.samples:
            connection.execute(_KEEP, _bound(sample, at_us))
            _extend_span(connection, sqlite_text(sample.platform), sqlite_text(sample.status), at_us)
        after = {sqlite_text(sample.platform): sqlite_text(sample.status) for sample in report.samples}
        for platform in before.keys() - after.keys():
            connection.execute(
                "UPDATE platforms SET connected = 0, since_us = ?, checked_us = ? WHERE platform = ?",
                (at_us, at_us, platform),
            )
        changes = tuple(
            HealthChange(platform, before.get(platform), after.get(platform), from_us(at_us))
            for platform in sorted(before.keys() | after.keys())
            if before.get(platform) != after.get(platform)
        )
        connection.executemany(
            "INSERT INTO health_changes (platform, old, new, at_us) VALUES (?, ?, ?, ?)",
            [(change.platform, change.old, change.new, at_us) for change in changes],
        )
        if changes:
            forget_old(connection, at_us)
    return changes


def platforms(connection: sqlite3.Connection) -> tuple[PlatformHealth, ...]:
    """The state of each platform ever connected, by name."""
    with snapshot(connection):
        history = _history(connection)
        found = connection.execute(
            "SELECT platform, status, host, host_group, since_us, checked_us, connected, raw_json"
            " FROM platforms ORDER BY platform"
        )
        return tuple(
            PlatformHealth(
                platform=platform,
                status=status,
                host=host,
                group=group,
                since=from_us(since_us),
                checked_at=from_us(checked_us),
                connected=bool(connected),
                raw_json=raw_json,
                history=history.get(platform, ()),
            )
            for platform, status, host, group, since_us, checked_us, connected, raw_json in found.fetchall()
        )


def _history(connection: sqlite3.Connection) -> dict[str, tuple[HealthChange, ...]]:
    found = connection.execute(
        "SELECT platform, old, new, at_us FROM"
        " (SELECT *, row_number() OVER (PARTITION BY platform ORDER BY id DESC) AS nth FROM health_changes)"
        " WHERE nth <= ? ORDER BY platform, nth",
        (HISTORY_CAP,),
    )
    changes = [HealthChange(platform, old, new, from_us(at_us)) for platform, old, new, at_us in found.fetchall()]
    return {platform: tuple(own) for platform, own in groupby(changes, lambda change: change.platform)}


def _extend_span(connection: sqlite3.Connection, platform: str, status: str, at_us: int) -> None:
    """Add a sample to the span that it continues, or begin a new one."""
    gap_us = LONGEST_GAP // timedelta(microseconds=1)
    extended = connection.execute(
        "UPDATE health_spans SET end_us = max(end_us, :at), samples = samples + 1"
        " WHERE id = (SELECT max(id) FROM health_spans WHERE platform = :platform)"
        " AND status = :status AND end_us >= :at - :gap",
        {"at": at_us, "gap": gap_us, "platform": platform, "status": status},
    )
    if extended.rowcount == 0:
        connection.execute(
            "INSERT INTO health_spans (platform, status, start_us, end_us, samples) VALUES (?, ?, ?, ?, 1)",
            (platform, status, at_us, at_us),
        )


def _bound(sample: HealthSample, at_us: int) -> dict[str, str | int | None]:
    return {
        "platform": sqlite_text(sample.platform),
        "status": sqlite_text(sample.status),
        "host": None if sample.host is None else sqlite_text(sample.host),
        "group": None if sample.group is None else sqlite_text(sample.group),
        "raw_json": sqlite_text(sample.raw_json),
        "at_us": at_us,
    }


def spans(connection: sqlite3.Connection, since: datetime, longest_gap: timedelta) -> tuple[HealthSpan, ...]:
    """Each platform's stretches that end after `since`, oldest first; none overlap, and unknown time lies between them.

    A status holds until the next sample, unless that is further away than `longest_gap`: then it is known up to its
    own last sample only.
    """
    found = connection.execute(
        "SELECT platform, status, start_us, end_us FROM health_spans WHERE end_us >= ? ORDER BY platform, id",
        (to_us(since),),
    ).fetchall()
    joined: list[_Span] = []
    for span in found:
        _append(joined, span, longest_gap // timedelta(microseconds=1))
    return tuple(HealthSpan(p, status, from_us(start), from_us(end)) for p, status, start, end in joined)


def _append(joined: list[_Span], span: _Span, gap_us: int) -> None:
    platform, status, start_us, end_us = span
    if joined and joined[-1][0] == platform:
        _, before, before_start_us, before_end_us = joined[-1]
        # Spans must not overlap, even if our clock was set back.
        start_us, end_us = max(start_us, before_end_us), max(end_us, before_end_us)
        if start_us - before_end_us <= gap_us:
            held_until_us = end_us if status == before else start_us
            joined[-1] = (platform, before, before_start_us, held_until_us)
            if status == before:
                return
    joined.append((platform, status, start_us, end_us))


def forget_old(connection: sqlite3.Connection, at_us: int) -> None:
    """Delete spans that ended too long ago to be shown; within the caller's transaction."""
    # In whole days, so that the start of a very long incident moves once a day, not with every sample.
    before_us = at_us - at_us % _DAY_US - KEPT // timedelta(microseconds=1)
    connection.execute("DELETE FROM health_spans WHERE end_us < ?", (before_us,))
    connection.execute(
        "DELETE FROM health_changes WHERE at_us < ? AND id NOT IN"
        " (SELECT max(id) FROM health_changes GROUP BY platform)",
        (before_us,),
    )
