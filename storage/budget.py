"""The request budget shared by all processes of a data folder: a few numbers in the cache's file."""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Final

from storage.cache import Cache
from storage.database import immediate
from storage.errors import StorageError
from storage.records.budget import BudgetState

FRESH_S: Final = 0.5
"""How long a reading counts as current: news of other processes come this late, and no request reads twice."""

BudgetChange = Callable[[BudgetState], BudgetState]
_NAMES: Final = frozenset(field.name for field in fields(BudgetState))


class SharedBudget:
    """The state, read at most twice a second, and written only after a change.

    If the cache cannot be used, the state is this process's own: storing the answers reports what is wrong.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._state = BudgetState()
        self._fresh_until_s = 0.0
        """Monotonic seconds."""

    async def current(self) -> BudgetState:
        """The state as of a moment ago."""
        if time.monotonic() >= self._fresh_until_s:
            try:
                self._keep(await self._cache.reader.run(_read))
            except StorageError:
                self._keep(self._state)
        return self._state

    async def change(self, change: BudgetChange) -> tuple[BudgetState, BudgetState]:
        """Change the state in one transaction; return it before and after."""
        try:
            before, after = await self._cache.writer.run(lambda connection: _change(connection, change))
        except StorageError:
            before, after = self._state, change(self._state)
        self._keep(after)
        return before, after

    def _keep(self, state: BudgetState) -> None:
        self._state = state
        self._fresh_until_s = time.monotonic() + FRESH_S


def _change(connection: sqlite3.Connection, change: BudgetChange) -> tuple[BudgetState, BudgetState]:
    with immediate(connection):
        before = _read(connection)
        after = change(before)
        old, new = asdict(before), asdict(after)
        changed = [(name, value) for name, value in new.items() if value != old[name]]
        connection.executemany("INSERT OR REPLACE INTO budget (name, value) VALUES (?, ?)", changed)
    return before, after


def _read(connection: sqlite3.Connection) -> BudgetState:
    rows = connection.execute("SELECT name, value FROM budget").fetchall()
    return BudgetState(**{name: value for name, value in rows if name in _NAMES})
