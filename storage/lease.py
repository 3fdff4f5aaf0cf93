"""The lease: one process of a data folder at a time does the work that must be done once, such as polling."""

import sqlite3
from datetime import datetime
from functools import partial
from typing import Protocol

from storage.database import immediate
from storage.thread import DatabaseThread
from storage.values import Clock, from_us, to_us

_SECOND_US = 1_000_000


class Leasing(Protocol):
    """A database with a table of leases."""

    @property
    def writer(self) -> DatabaseThread:
        """The thread that writes."""

    @property
    def clock(self) -> Clock:
        """The clock that leases expire by."""


class Lease:
    """Named leases in a database with their table; a lease that is not renewed in time is free again.

    Without a database every claim is granted: each process then does the work itself.
    """

    def __init__(self, database: Leasing | None) -> None:
        self._database = database

    async def acquire(self, name: str, owner: str, ttl_s: float) -> bool:
        """Take the lease for `ttl_s` seconds; return whether it was free, expired, or the owner's."""
        if self._database is None:
            return True
        claim = partial(_acquire, name=name, owner=owner, clock=self._database.clock, ttl_us=round(ttl_s * _SECOND_US))
        return await self._database.writer.run(claim)

    async def release(self, name: str, owner: str) -> None:
        """Give the lease back, if the owner holds it."""
        if self._database is not None:
            await self._database.writer.run(partial(_release, name=name, owner=owner))

    async def is_held_by_another(self, name: str, owner: str) -> bool:
        """Whether another owner holds the lease now."""
        if self._database is None:
            return False
        held = partial(_is_held_by_another, name=name, owner=owner, now_us=to_us(self._database.clock()))
        return await self._database.writer.run(held)


def _acquire(connection: sqlite3.Connection, name: str, owner: str, clock: Clock, ttl_us: int) -> bool:
    with immediate(connection):
        # The clock is read under the lock: before the wait for it, the time could be earlier than the holder's.
        now_us = to_us(clock())
        taken = connection.execute(
            "INSERT INTO leases (name, owner, until_us) VALUES (:name, :owner, :until) ON CONFLICT (name) DO UPDATE"
            " SET owner = excluded.owner, until_us = excluded.until_us"
            " WHERE owner = excluded.owner OR until_us <= :now OR until_us > :unbelievable",
            {
                "name": name,
                "owner": owner,
                "until": now_us + ttl_us,
                "now": now_us,
                # No lease ends this late: the clock was set back, and the lease would outlast its holder.
                "unbelievable": now_us + 2 * ttl_us,
            },
        )
    return taken.rowcount == 1


def _is_held_by_another(connection: sqlite3.Connection, name: str, owner: str, now_us: int) -> bool:
    query = "SELECT 1 FROM leases WHERE name = ? AND owner <> ? AND until_us > ?"
    return connection.execute(query, (name, owner, now_us)).fetchone() is not None


def _release(connection: sqlite3.Connection, name: str, owner: str) -> None:
    with immediate(connection):
        connection.execute("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))


def lease_until(connection: sqlite3.Connection, name: str) -> datetime | None:
    """Until when a lease is held; None: it is not held."""
    row = connection.execute("SELECT until_us FROM leases WHERE name = ?", (name,)).fetchone()
    return None if row is None else from_us(row[0])


def lease_owner(connection: sqlite3.Connection, name: str, now: datetime) -> str | None:
    """The name of the process that holds a lease now, or None."""
    query = "SELECT owner FROM leases WHERE name = ? AND until_us > ?"
    row = connection.execute(query, (name, to_us(now))).fetchone()
    return None if row is None else str(row[0])
