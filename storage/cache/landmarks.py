"""Landmarks: where runs stand that were read before, so that what lies near them is not counted off again."""

import sqlite3
from dataclasses import dataclass
from typing import Final

from storage.cache.orders import key_columns
from storage.database import data_version
from storage.records import RunFilter, RunSort

_KEPT: Final = 64
"""Of one filter and order: those of a person who pages for a minute."""

Key = tuple[str | int, ...]
"""What says where in the order a run stands."""


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
        self, connection: sqlite3.Connection, wanted: RunFilter, sort: RunSort, offset: int, *, within: int
    ) -> Landmark | None:
        """The landmark nearest to a place; None: there is none less than `within` rows away."""
        self._forget_stale(connection)
        known = self._known.get((wanted, sort), ())
        near = min(known, key=lambda landmark: abs(landmark.offset - offset), default=None)
        return near if near is not None and abs(near.offset - offset) < within else None

    def note(self, connection: sqlite3.Connection, wanted: RunFilter, sort: RunSort, offset: int, run_id: str) -> None:
        """So many runs come before this one, which was read just now."""
        columns = ", ".join(key_columns(sort))
        key = connection.execute(f"SELECT {columns} FROM runs WHERE run_id = ?", (run_id,)).fetchone()  # noqa: S608 — built from constants
        if key is None:
            return
        # One filter at a time: whoever comes back to another one counts once more.
        known = self._known.get((wanted, sort), [])[-_KEPT:]
        self._known = {(wanted, sort): [*(mark for mark in known if mark.offset != offset), Landmark(offset, key)]}

    def _forget_stale(self, connection: sqlite3.Connection) -> None:
        version = data_version(connection)
        if version != self._version:
            self._known.clear()
            self._version = version
