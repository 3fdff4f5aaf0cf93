"""The health of the code hosts over time: stretches of one status, with the time between samples where it is known."""

import sqlite3
from datetime import datetime, timedelta
from typing import Final

from storage.records.health import HealthSpan
from storage.times import from_us, to_us

KEPT: Final = timedelta(days=35)
"""More than the longest window that is shown."""

_Span = tuple[str, str, int, int]
"""Platform, status, start and end in microseconds."""

_DAY_US: Final = timedelta(days=1) // timedelta(microseconds=1)


def spans(connection: sqlite3.Connection, since: datetime, longest_gap: timedelta) -> tuple[HealthSpan, ...]:
    """Each platform's stretches that end after `since`, oldest first; none overlap, and unknown time lies between them.

    A status holds until the next sample, unless that is further away than `longest_gap`: then it is known up to its
    own last sample only.
    """
    found = connection.execute(
        "SELECT platform, status, start_us, end_us FROM health_spans WHERE end_us >= ? ORDER BY platform, id",
        (to_us(since),),
    ).fetchall()
    joined: list[_Span] = []
    for span in found:
        _append(joined, span, longest_gap // timedelta(microseconds=1))
    return tuple(HealthSpan(p, status, from_us(start), from_us(end)) for p, status, start, end in joined)


def _append(joined: list[_Span], span: _Span, gap_us: int) -> None:
    platform, status, start_us, end_us = span
    if joined and joined[-1][0] == platform:
        _, before, before_start_us, before_end_us = joined[-1]
        # A clock that was set back must not make time run backwards.
        start_us, end_us = max(start_us, before_end_us), max(end_us, before_end_us)
        if start_us - before_end_us <= gap_us:
            held_until_us = end_us if status == before else start_us
            joined[-1] = (platform, before, before_start_us, held_until_us)
            if status == before:
                return
    joined.append((platform, status, start_us, end_us))


def forget_old(connection: sqlite3.Connection, at_us: int) -> None:
    """Delete what ended too long ago to be shown; within the caller's transaction."""
    # Whole days: the beginning of a trouble that lasts longer moves once a day, not with every sample.
    before_us = at_us - at_us % _DAY_US - KEPT // timedelta(microseconds=1)
    connection.execute("DELETE FROM health_spans WHERE end_us < ?", (before_us,))
    connection.execute(
        "DELETE FROM health_changes WHERE at_us < ? AND id NOT IN"
        " (SELECT max(id) FROM health_changes GROUP BY platform)",
        (before_us,),
    )
