"""Landmarks: runs whose places in an order are known from an earlier read."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from storage.cache.run_sql import key_columns
from storage.database import data_version
from storage.records import RunFilter, RunSort

_KEPT: Final = 64
"""How many landmarks are kept for one filter and order: enough for a minute of paging."""
Key = tuple[str | int, ...]
"""The values that determine a run's place in the order."""


@dataclass(frozen=True, slots=True)
class Landmark:
    """A run and how many come before it."""

    offset: int
    key: Key


class Landmarks:
    """Runs whose places are known until the cache changes; for one connection, on its thread."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._known: dict[tuple[RunFilter, RunSort], list[Landmark]] = {}

    def nearest(
        self, connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, *, within: int
    ) -> Landmark | None:
        """The landmark nearest to a place; None: none is less than `within` rows away."""
        self._forget_stale(connection)
        known = self._known.get((condition, sort), ())
        nearest = min(known, key=lambda landmark: abs(landmark.offset - offset), default=None)
        return nearest if nearest is not None and abs(nearest.offset - offset) < within else None

    def note(
        self, connection: sqlite3.Connection, condition: RunFilter, sort: RunSort, offset: int, run_id: str
    ) -> None:
        """Note the place of a run that was read just now."""
        columns = ", ".join(key_columns(sort))
        key = connection.execute(f"SELECT {columns} FROM runs WHERE run_id = ?", (run_id,)).fetchone()
        if key is None:
            return
        # Landmarks are kept for one filter at a time; going back to another one costs one count.
        known = self._known.get((condition, sort), [])[-_KEPT:]
        self._known = {(condition, sort): [*(mark for mark in known if mark.offset != offset), Landmark(offset, key)]}

    def _forget_stale(self, connection: sqlite3.Connection) -> None:
        version = data_version(connection)
        if version != self._version:
            self._known.clear()
            self._version = version
