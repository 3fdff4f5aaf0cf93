"""The stored state of the rules: since when each has its present definition, and whether it is paused."""

import json
import sqlite3
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

from storage.database import immediate
from storage.records.decision import BY_HAND, RuleState
from storage.values import from_us, sqlite_text, to_us

AHEAD: Final = timedelta(minutes=5)
"""How far in the future a rule may have begun, for clocks that differ a little."""
OWN: Final = "[notify] on"
"""Stored like a rule's name: when Runwarden's own `[notify] on` was last changed."""
AT_WORK: Final = "[automations] at work"
"""Stored like a rule's name, with the fingerprint of all rules of the running bot."""
_COLUMNS: Final = "rule, fingerprint, since_us, failures, paused, looked"


def begin(connection: sqlite3.Connection, rule: str, fingerprint: str, now: datetime) -> RuleState:
    """Return the rule's state; a new rule, or an edited one, begins now.

    An edit counts as the cure of a rule that paused itself; one that a person paused stays so.
    """
    with immediate(connection):
        held = connection.execute(f"SELECT {_COLUMNS} FROM rules WHERE rule = ?", (sqlite_text(rule),)).fetchone()
        # A rule that began in the future, by a wrong clock, begins now instead of waiting for that time.
        if held is not None and held[1] == fingerprint and held[2] <= to_us(now + AHEAD):
            return _state(held)
        stays = held is not None and (held[1] == fingerprint or (held[4] or "").startswith(BY_HAND))
        paused = held[4] if held is not None and stays else None
        connection.execute(
            f"INSERT OR REPLACE INTO rules ({_COLUMNS}) VALUES (?, ?, ?, 0, ?, 0)",
            (sqlite_text(rule), fingerprint, to_us(now), paused),
        )
    return RuleState(rule, fingerprint, now, paused=paused, is_new=True)


def retire(connection: sqlite3.Connection, names: Collection[str]) -> None:
    """Forget the state of removed rules: one that comes back begins as a new one."""
    query = "UPDATE rules SET fingerprint = '' WHERE rule NOT IN (SELECT value FROM json_each(?))"
    with immediate(connection):
        connection.execute(query, (json.dumps([*map(sqlite_text, names), OWN, AT_WORK]),))


def mark_looked(connection: sqlite3.Connection, rule: str) -> None:
    """Note that the rule has seen everything older than itself: all that follows is news."""
    with immediate(connection):
        connection.execute("UPDATE rules SET looked = 1 WHERE rule = ?", (sqlite_text(rule),))


def pause(connection: sqlite3.Connection, rule: str, why: str) -> bool:
    """Pause the rule; return whether it is known and was not paused."""
    query = "UPDATE rules SET paused = ? WHERE rule = ? AND paused IS NULL"
    with immediate(connection):
        return connection.execute(query, (sqlite_text(why), sqlite_text(rule))).rowcount > 0


def resume(connection: sqlite3.Connection, rule: str) -> bool:
    """Resume the rule; return whether it was paused. Occurrences in between stay undone."""
    query = "UPDATE rules SET paused = NULL, failures = 0 WHERE rule = ? AND paused IS NOT NULL"
    with immediate(connection):
        return connection.execute(query, (sqlite_text(rule),)).rowcount > 0


def count_failure(connection: sqlite3.Connection, rule: str, *, has_failed: bool) -> int:
    """Count failures in a row; a success resets them. Return their number."""
    with immediate(connection):
        connection.execute(
            f"UPDATE rules SET failures = {'failures + 1' if has_failed else '0'} WHERE rule = ?", (sqlite_text(rule),)
        )
        found = connection.execute("SELECT failures FROM rules WHERE rule = ?", (sqlite_text(rule),)).fetchone()
    return 0 if found is None else int(found[0])


def states(connection: sqlite3.Connection) -> dict[str, RuleState]:
    """All rules ever seen, by name."""
    return {row[0]: _state(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM rules").fetchall()}


def _state(row: tuple[Any, ...]) -> RuleState:
    rule, fingerprint, since_us, failures, paused, looked = row
    return RuleState(rule, fingerprint, from_us(since_us), failures, paused, is_new=not looked)
