"""Leases: one process of a data folder at a time does the work that must be done once, such as polling.

A lease that is not renewed in time is free again.
"""

import sqlite3
from datetime import datetime

from storage.database import immediate
from storage.values import Clock, from_us, to_us

_SECOND_US = 1_000_000


def acquire(connection: sqlite3.Connection, name: str, owner: str, ttl_s: float, clock: Clock) -> bool:
    """Take the lease for `ttl_s` seconds; return whether it was free, expired, or the owner's."""
    with immediate(connection):
        # The clock is read under the lock: before the wait for it, the time could be earlier than the holder's.
        now_us, ttl_us = to_us(clock()), round(ttl_s * _SECOND_US)
        taken = connection.execute(
            "INSERT INTO leases (name, owner, until_us) VALUES (:name, :owner, :until) ON CONFLICT (name) DO UPDATE"
            " SET owner = excluded.owner, until_us = excluded.until_us"
            " WHERE owner = excluded.owner OR until_us <= :now OR until_us > :unbelievable",
            # No lease ends so late: the clock was set back, and the lease would outlast its holder.
            {
                "name": name,
                "owner": owner,
                "until": now_us + ttl_us,
                "now": now_us,
                "unbelievable": now_us + 2 * ttl_us,
            },
        )
    return taken.rowcount == 1


def release(connection: sqlite3.Connection, name: str, owner: str) -> None:
    """Give the lease back, if the owner holds it."""
    with immediate(connection):
        connection.execute("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))


def until(connection: sqlite3.Connection, name: str) -> datetime | None:
    """Until when a lease is held; None: it is not held."""
    row = connection.execute("SELECT until_us FROM leases WHERE name = ?", (name,)).fetchone()
    return None if row is None else from_us(row[0])


def owner(connection: sqlite3.Connection, name: str, now: datetime) -> str | None:
    """The name of the process that holds a lease now, or None."""
    query = "SELECT owner FROM leases WHERE name = ? AND until_us > ?"
    row = connection.execute(query, (name, to_us(now))).fetchone()
    return None if row is None else str(row[0])
