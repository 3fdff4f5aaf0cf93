"""Times as people read them: pure functions of a moment and the present."""

from datetime import datetime, timedelta
from typing import Final

MINUTE_S: Final = 60
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S
DATED_AFTER: Final = timedelta(days=30)
"""From this age on, a date is shown instead of a number of days."""


def age(then: datetime, now: datetime) -> str:
    """How long ago, in one unit: `now`, `12s`, `4m`, `3h`, `2d`; `in 5m` if the other clock is ahead."""
    seconds = int((now - then).total_seconds())
    if seconds <= -MINUTE_S:
        return f"in {_one_unit(-seconds)}"
    return _one_unit(seconds) if seconds > 0 else "now"


def ago(then: datetime, now: datetime) -> str:
    """How long ago, as a phrase: `4m ago`, `just now`."""
    text = age(then, now)
    if text == "now":
        return "just now"
    return text if text.startswith("in ") else f"{text} ago"


def started(then: datetime | None, now: datetime) -> str:
    """When something started, in at most eight cells: `4m ago`, then `12 Apr`, then `Apr 2025`; `-` if unknown."""
    if then is None:
        return "-"
    if now - then < DATED_AFTER:
        return ago(then, now).removeprefix("just ")
    local, today = then.astimezone(), now.astimezone()
    return f"{local.day} {local:%b}" if local.year == today.year else f"{local:%b %Y}"


def span(seconds: float) -> str:
    """A duration in its two largest units: `37s`, `4m12s`, `1h05m`, `2d03h`."""
    whole = max(0, int(seconds))
    if whole < MINUTE_S:
        return f"{whole}s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S}m{whole % MINUTE_S:02}s"
    if whole < DAY_S:
        return f"{whole // HOUR_S}h{whole % HOUR_S // MINUTE_S:02}m"
    return f"{whole // DAY_S}d{whole % DAY_S // HOUR_S:02}h"


def clock_time(at: datetime, now: datetime) -> str:
    """A moment in local time: `14:02:11` today, `12 Apr 14:02` this year, with the year before that."""
    local, today = at.astimezone(), now.astimezone()
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    if local.year == today.year:
        return f"{local.day} {local:%b %H:%M}"
    return f"{local.day} {local:%b %Y %H:%M}"


def stamp(at: datetime) -> str:
    """A moment in full, in local time with its zone: `2026-04-12 14:02:11 CEST`."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def day(at: datetime, now: datetime) -> str:
    """A date in local time: `12 Apr`, with the year if it is another one."""
    local = at.astimezone()
    return f"{local.day} {local:%b}" if local.year == now.astimezone().year else f"{local.day} {local:%b %Y}"


def _one_unit(seconds: int) -> str:
    for unit_s, sign in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m")):
        if seconds >= unit_s:
            return f"{seconds // unit_s}{sign}"
    return f"{seconds}s"
