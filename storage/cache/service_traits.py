"""What is known of the service: how it filters and shows times, its clock and its habits."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final, cast

from storage.database import immediate
from storage.records import DateFilter, Habit, RunClock, ServiceTraits
from storage.records.service_traits import BudgetState
from storage.values import from_us, to_us

REMEMBERED: Final = timedelta(days=1)
"""How long a habit is assumed to last after it was seen."""
_SECOND: Final = timedelta(seconds=1)


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
