"""The request budget in the cache, which all processes of a data folder share."""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Final

from storage.database import immediate
from storage.errors import StorageError
from storage.records.service_traits import BudgetState

if TYPE_CHECKING:
    from storage.cache import Cache

FRESH_S: Final = 0.5
"""How long a reading counts as current, and so how late a change by another process can be noticed."""
_NAMES: Final = frozenset(field.name for field in fields(BudgetState))
BudgetChange = Callable[[BudgetState], BudgetState]


class SharedBudget:
    """The request budget that all processes of a data folder share.

    It is read at most twice a second, and written only after a change. If the cache cannot be used, each process
    has a budget of its own; the failure is reported where answers are stored.
    """

    def __init__(self, cache: "Cache") -> None:
        self._cache = cache
        self._state = BudgetState()
        self._fresh_until_s = 0.0
        """The monotonic time until which the state counts as current."""

    async def current(self) -> BudgetState:
        """The state, at most `FRESH_S` old."""
        if time.monotonic() >= self._fresh_until_s:
            try:
                self._keep(await self._cache.reader.run(_read_budget))
            except StorageError:
                self._keep(self._state)
        return self._state

    async def change(self, change: BudgetChange) -> tuple[BudgetState, BudgetState]:
        """Change the state in one transaction; return it before and after."""
        try:
            before, after = await self._cache.writer.run(lambda connection: _change_budget(connection, change))
        except StorageError:
            before, after = self._state, change(self._state)
        self._keep(after)
        return before, after

    def _keep(self, state: BudgetState) -> None:
        self._state = state
        self._fresh_until_s = time.monotonic() + FRESH_S


def _change_budget(connection: sqlite3.Connection, change: BudgetChange) -> tuple[BudgetState, BudgetState]:
    with immediate(connection):
        before = _read_budget(connection)
        after = change(before)
        old, new = asdict(before), asdict(after)
        changed = [(name, value) for name, value in new.items() if value != old[name]]
        connection.executemany("INSERT OR REPLACE INTO budget (name, value) VALUES (?, ?)", changed)
    return before, after


def _read_budget(connection: sqlite3.Connection) -> BudgetState:
    rows = connection.execute("SELECT name, value FROM budget").fetchall()
    return BudgetState(**{name: value for name, value in rows if name in _NAMES})
