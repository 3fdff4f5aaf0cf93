"""The observed health of the code hosts: now, since when, and in stretches of one status over time."""

import sqlite3
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import asdict

from storage.database import execute
from storage.records import HealthChange, HealthSample, PlatformHealth
from storage.records.health import HEALTH_KEPT, HealthSpan
from storage.values import bound, from_us, records, sqlite_text, to_us

MAX_GAP: Final = timedelta(minutes=10)
"""Samples further apart do not cover the time between them."""
_DAY_US: Final = timedelta(days=1) // timedelta(microseconds=1)
_KEEP: Final = """
INSERT INTO platforms (platform, status, host, host_group, raw_json, since_us, checked_us, connected)
VALUES (:platform, :status, :host, :group, :raw_json, :at, :at, 1)
ON CONFLICT (platform) DO UPDATE SET
    before = CASE WHEN NOT connected THEN NULL WHEN status = excluded.status THEN before ELSE status END,
    since_us = CASE WHEN connected AND status = excluded.status THEN since_us ELSE excluded.since_us END,
    status = excluded.status, host = excluded.host, host_group = excluded.host_group,
    raw_json = excluded.raw_json, checked_us = excluded.checked_us, connected = 1
"""
_EXTEND: Final = """
UPDATE health_spans SET end_us = max(end_us, :at), samples = samples + 1
WHERE id = (SELECT max(id) FROM health_spans WHERE platform = :platform) AND status = :status AND end_us >= :at - :gap
"""
_BEGIN: Final = """
INSERT INTO health_spans (platform, status, start_us, end_us, samples) VALUES (:platform, :status, :at, :at, 1)
"""


def store(connection: sqlite3.Connection, samples: Collection[HealthSample], at: datetime) -> tuple[HealthChange, ...]:
    """Store an answer to the health request; return the platforms whose status changed, by name.

    A platform that it omits is no longer connected: a change to None.
    """
    at_us = to_us(at)
    before = dict(connection.execute("SELECT platform, status FROM platforms WHERE connected").fetchall())
    for sample in samples:
        values = {name: bound(value) for name, value in asdict(sample).items()}
        values |= {"at": at_us, "gap": MAX_GAP // timedelta(microseconds=1)}
        connection.execute(_KEEP, values)
        # A sample extends the span that it continues, or begins a new one.
        if connection.execute(_EXTEND, values).rowcount == 0:
            connection.execute(_BEGIN, values)
    after = {sqlite_text(sample.platform): sqlite_text(sample.status) for sample in samples}
    for platform in before.keys() - after.keys():
        sql = "UPDATE platforms SET connected = 0, since_us = ?1, checked_us = ?1 WHERE platform = ?2"
        execute(connection, sql, at_us, platform)
    changes = tuple(
        HealthChange(platform, before.get(platform), after.get(platform), from_us(at_us))
        for platform in sorted(before.keys() | after.keys())
        if before.get(platform) != after.get(platform)
    )
    if changes:
        # In whole days, so that the start of a very long incident moves once a day, not with every sample.
        before_us = at_us - at_us % _DAY_US - HEALTH_KEPT // timedelta(microseconds=1)
        connection.execute("DELETE FROM health_spans WHERE end_us < ?", (before_us,))
    return changes


def platforms(connection: sqlite3.Connection) -> tuple[PlatformHealth, ...]:
    """The state of each platform ever connected, by name."""
    columns = "platform, status, host, host_group, since_us, checked_us, connected, raw_json, before"
    return records(PlatformHealth, connection.execute(f"SELECT {columns} FROM platforms ORDER BY platform"))


def spans(connection: sqlite3.Connection, since: datetime, longest_gap: timedelta) -> tuple[HealthSpan, ...]:
    """Each platform's stretches that end after `since`, oldest first; none overlap, and unknown time lies between them.

    A status holds until the next sample, unless that is further away than `longest_gap`: then it is known up to its
    own last sample only.
    """
    sql = "SELECT platform, status, start_us, end_us FROM health_spans WHERE end_us >= ? ORDER BY platform, id"
    gap_us = longest_gap // timedelta(microseconds=1)
    joined: list[tuple[str, str, int, int]] = []
    for platform, status, start_us, end_us in execute(connection, sql, since).fetchall():
        start, end = start_us, end_us
        if joined and joined[-1][0] == platform:
            _, before, before_start, before_end = joined[-1]
            # Spans must not overlap, even if our clock was set back.
            start, end = max(start_us, before_end), max(end_us, before_end)
            if start - before_end <= gap_us:
                joined[-1] = (platform, before, before_start, end if status == before else start)
                if status == before:
                    continue
        joined.append((platform, status, start, end))
    return records(HealthSpan, joined)
