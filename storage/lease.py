"""The lease: of all processes that share a data folder, one at a time does what must be done once, such as polling."""

import sqlite3
from functools import partial
from typing import Protocol

from storage.database import immediate
from storage.thread import DatabaseThread
from storage.values import Clock, to_us

_SECOND_US = 1_000_000


class Leasing(Protocol):
    """A database with a table of leases."""

    @property
    def writer(self) -> DatabaseThread:
        """Where it writes."""

    @property
    def clock(self) -> Clock:
        """The time it goes by."""


class Lease:
    """Named leases in a database that has their table; a lease not renewed in time is free again."""

    def __init__(self, database: Leasing) -> None:
        self._thread = database.writer
        self._clock = database.clock

    async def acquire(self, name: str, owner: str, ttl_s: float) -> bool:
        """Whether the owner holds the lease for the next `ttl_s` seconds: it was free, had run out, or was theirs."""
        ttl_us = round(ttl_s * _SECOND_US)
        return await self._thread.run(partial(_acquire, name=name, owner=owner, clock=self._clock, ttl_us=ttl_us))

    async def release(self, name: str, owner: str) -> None:
        """Give the lease back, if the owner holds it."""
        await self._thread.run(partial(_release, name=name, owner=owner))


def _acquire(connection: sqlite3.Connection, name: str, owner: str, clock: Clock, ttl_us: int) -> bool:
    with immediate(connection):
        # Read once the lock is held: a time from before the wait could lie before the one that the holder wrote.
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
                # Further away than any term: the clock was set back, and the lease would never run out.
                "unbelievable": now_us + 2 * ttl_us,
            },
        )
    return taken.rowcount == 1


def _release(connection: sqlite3.Connection, name: str, owner: str) -> None:
    with immediate(connection):
        connection.execute("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))
