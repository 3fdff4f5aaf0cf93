"""Steps of the service's clock: while it is behind, no coverage is claimed beyond the service's present."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from storage.cache.coverage import BEHIND_FROM, keep_values, trait_values
from storage.database import immediate
from storage.values import NO_TIME_US, to_sortable_us, to_us

_MICROSECOND: Final = timedelta(microseconds=1)
_STEP_US: Final = timedelta(seconds=5) // _MICROSECOND
"""A smaller change of the difference between the clocks is noise: answers take time, and have whole seconds."""
_MARGIN_US: Final = timedelta(seconds=2) // _MICROSECOND
_BEHIND: Final = (BEHIND_FROM, "behind_until_us")
"""Traits that exist while the service's clock, after it was set back, has not caught up: the creation time above which
nothing is claimed, and when it will have caught up, by its own clock."""
_CLOCK: Final = ("clock_ahead_us", "clock_judged", *_BEHIND)
"""The traits that store how far the service's clock was ahead in its last answer, and whether run times were compared
with it; and `_BEHIND`."""


def note_clock(connection: sqlite3.Connection, ahead: timedelta, now: datetime, newest: datetime | None = None) -> bool:
    """Store how far the service's clock is ahead of ours; return whether it was set back and has not caught up yet.

    After it was set back, new runs appear in the list among those that are held already. Until it has caught up,
    no coverage is claimed beyond the service's present.

    Args:
        connection: The cache's writer.
        ahead: How far it is ahead, by the last answer.
        now: When the request was sent whose answer is to be claimed, by our clock.
        newest: The latest time in the list. None: it shows no time that is certain.
    """
    ahead_us, now_us, newest_us = ahead // _MICROSECOND, to_us(now), to_sortable_us(newest)
    known = _clock(connection)
    before_us, until_us = known.get("clock_ahead_us"), known.get("behind_until_us")
    # The first certain times show whether the clock was set back before the first answer.
    is_first = newest is not None and "clock_judged" not in known
    is_step = before_us is None or abs(ahead_us - before_us) > _STEP_US
    if not is_step and not is_first and until_us is None:
        return False
    with immediate(connection):
        if before_us is not None and ahead_us < before_us - _STEP_US:
            until_us = max(until_us or 0, _set_back(connection, now_us, ahead_us, newest_us, before_us))
        elif is_first and newest_us > now_us + ahead_us + _MARGIN_US:
            until_us = max(until_us or 0, _set_back(connection, now_us, ahead_us, newest_us))
        if is_step:
            keep_values(connection, clock_ahead_us=ahead_us)
        if is_first:
            keep_values(connection, clock_judged=1)
        is_behind = until_us is not None and now_us + ahead_us < until_us
        if is_behind:
            keep_values(connection, behind_until_us=until_us or 0)
        else:
            connection.execute("DELETE FROM service_traits WHERE name IN (?, ?)", _BEHIND)
    return is_behind


def _set_back(
    connection: sqlite3.Connection, now_us: int, ahead_us: int, newest_us: int, before_us: int | None = None
) -> int:
    """Withdraw claims above the service's present; return until when its clock is behind, by that clock.

    `before_us`: how far it was ahead before. None: not known.
    """
    held = connection.execute("SELECT end_us, as_of_us FROM coverage ORDER BY end_us DESC LIMIT 1").fetchone()
    # Nothing else is known of the present than that the claims were true before it.
    end_us, as_of_us = held or (NO_TIME_US if newest_us == NO_TIME_US else now_us + ahead_us, now_us)
    by_us = max(0, end_us - as_of_us - ahead_us) if before_us is None else before_us - ahead_us if held else 0
    from_us = NO_TIME_US if end_us == NO_TIME_US else max(NO_TIME_US, end_us - by_us - _MARGIN_US)
    connection.execute("DELETE FROM coverage WHERE start_us > ?", (from_us,))
    connection.execute("UPDATE coverage SET end_us = min(end_us, ?)", (from_us,))
    if held or from_us != NO_TIME_US:
        # If no range is left, an instant is stored, so that what is below it counts as missing and is fetched.
        connection.execute(
            "INSERT INTO coverage (start_us, end_us, as_of_us)"
            " SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM coverage)",
            (from_us, from_us, NO_TIME_US),
        )
    keep_values(connection, behind_from_us=from_us)
    if before_us is None:
        return newest_us + _MARGIN_US
    former_us = now_us + before_us if newest_us == NO_TIME_US else newest_us + _MARGIN_US
    return max(former_us, as_of_us + before_us if held else former_us)


def _clock(connection: sqlite3.Connection) -> dict[str, int]:
    return trait_values(connection, _CLOCK)
