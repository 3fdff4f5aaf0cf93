"""Claims: of all processes on one data folder one may tell of a thing outside its own screen, and only once."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from storage.database import immediate
from storage.storable import storable
from storage.times import to_us

KEPT: Final = timedelta(days=90)
"""So long nothing is told a second time."""


def claim(connection: sqlite3.Connection, keys: Sequence[str], at: datetime) -> frozenset[str]:
    """Claim these; those that nobody had claimed before."""
    at_us = to_us(at)
    won: set[str] = set()
    # The lock from the start: of two processes that ask at once the second must see the first one's claim.
    with immediate(connection):
        connection.execute("DELETE FROM claims WHERE at_us < ?", (at_us - KEPT // timedelta(microseconds=1),))
        for key in keys:
            taken = connection.execute(
                "INSERT INTO claims (key, at_us) VALUES (?, ?) ON CONFLICT DO NOTHING", (storable(key), at_us)
            )
            if taken.rowcount == 1:
                won.add(key)
    return frozenset(won)


def claimed(connection: sqlite3.Connection, keys: Sequence[str]) -> frozenset[str]:
    """Those of these that somebody has claimed."""
    return frozenset(
        key
        for key in keys
        if connection.execute("SELECT 1 FROM claims WHERE key = ?", (storable(key),)).fetchone() is not None
    )
