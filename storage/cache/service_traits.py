"""What is known of the service: how it filters and shows times, its clock, its habits, and the request budget."""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

from storage.database import immediate
from storage.errors import StorageError
from storage.records import DateFilter, Habit, RunClock, ServiceTraits
from storage.records.service_traits import BudgetState
from storage.values import from_us, to_us

if TYPE_CHECKING:
    from storage.cache import Cache

REMEMBERED: Final = timedelta(days=1)
"""How long a habit is assumed to last after it was seen."""
FRESH_S: Final = 0.5
"""How long a reading counts as current, and so how late a change by another process can be noticed."""
_SECOND: Final = timedelta(seconds=1)
_NAMES: Final = frozenset(field.name for field in fields(BudgetState))

BudgetChange = Callable[[BudgetState], BudgetState]


def traits(connection: sqlite3.Connection) -> ServiceTraits:
    """How the service filters and shows times, as far as that is known."""
    held = dict(connection.execute("SELECT name, value FROM service_traits").fetchall())
    return ServiceTraits(
        cast("DateFilter", held.get("date_filter", "unknown")), int(held.get("display_offset_s", 0)) * _SECOND
    )


def set_traits(connection: sqlite3.Connection, found: ServiceTraits) -> None:
    """Remember how the service filters and shows times."""
    with immediate(connection):
        connection.executemany(
            "INSERT INTO service_traits (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [("date_filter", found.date_filter), ("display_offset_s", str(found.display_offset // _SECOND))],
        )


def run_clock(connection: sqlite3.Connection) -> RunClock:
    """The clock that dates the runs, as far as it is known."""
    held = dict(connection.execute("SELECT name, value FROM budget WHERE name LIKE 'clock_%'").fetchall())
    found = traits(connection)
    ahead = timedelta(seconds=held.get("clock_ahead_s", 0.0)) + found.display_offset
    # If the list cannot be filtered by dates, the times it shows may be local ones without a sign of it.
    return RunClock(ahead, is_known=bool(held.get("clock_heard")) and found.date_filter in {"created", "updated"})


def note(connection: sqlite3.Connection, habit: Habit, at: datetime) -> None:
    """Remember when the service last showed a habit."""
    with immediate(connection):
        connection.execute(
            "INSERT INTO service_traits (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (habit, str(to_us(at))),
        )


def has_habit(connection: sqlite3.Connection, habit: Habit, now: datetime) -> bool:
    """Whether the service showed the habit within a day: it may have been fixed."""
    row = connection.execute("SELECT value FROM service_traits WHERE name = ?", (habit,)).fetchone()
    return row is not None and abs(now - from_us(int(row[0]))) < REMEMBERED


def run_clock_ahead(connection: sqlite3.Connection) -> timedelta:
    """How far the runs' times are ahead of our clock: the service's clock may be off, or show local time."""
    held = connection.execute("SELECT value FROM budget WHERE name = 'clock_ahead_s'").fetchone()
    return BudgetState(clock_ahead_s=held[0] if held else 0.0).clock_ahead + traits(connection).display_offset


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
