"""Fire times: when a schedule is due.

A fixed time fires once per local day. A time skipped by daylight saving fires at the end of the gap; one that occurs
twice fires the first time.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from service.clock import EPOCH, MICROSECOND

_FIELDS: Final = 5
_MINUTE: Final = timedelta(minutes=1)
_FIX: Final = "write five fields, as in '0 3 * * mon-fri': minute, hour, day of the month, month, day of the week"


@cache
def check_schedule(schedule: str, timezone: str) -> None:
    """Check that a schedule is valid and fires at some time.

    Raises:
        ValueError: It is invalid or never fires; the message says why.
    """
    fields = schedule.split()
    if len(fields) != _FIELDS:
        raise ValueError(f"{schedule!r} is not a schedule: {_FIX}; a minute is the shortest interval")
    if not (fields[2].startswith("*") or fields[4].startswith("*")):
        raise ValueError("a day of the month together with a weekday is ambiguous: write two rules")
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{timezone!r} is not a time zone: write one such as Europe/Berlin or UTC") from error
    try:
        is_due = next(CronSim(schedule, datetime.now(zone)), None) is not None
    except CronSimError as error:
        raise ValueError(f"{schedule!r} is not a schedule ({str(error).lower()}): {_FIX}") from error
    if not is_due:
        raise ValueError(f"{schedule!r} never comes: correct its day or month")


def fire_times(schedule: str, timezone: str, after: int) -> Iterator[int]:
    """Yield the times of a valid schedule after an instant, oldest first; all in microseconds."""
    zone, since = ZoneInfo(timezone), EPOCH + timedelta(microseconds=after)
    cron = CronSim(schedule, since.astimezone(zone))
    is_fixed = not any(field.startswith("*") for field in schedule.split()[:2])
    times = (local.astimezone(UTC) for local in cron) if is_fixed else _real_times(cron, zone, since)
    return ((at - EPOCH) // MICROSECOND for at in times if at > since)


def _real_times(cron: CronSim, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the minutes in UTC at which the local clock matches the fields.

    CronSim itself misses some: on days that begin in a gap, and in zones that shift by half an hour.
    """
    at = after.replace(second=0, microsecond=0) + _MINUTE
    while True:
        local = at.astimezone(zone)
        is_day = local.month in cron.months and cron.match_day(local.date())
        if is_day and local.hour in cron.hours and local.minute in cron.minutes:
            yield at
        midnight = datetime.combine(local.date() + timedelta(days=1), time(), zone).astimezone(UTC)
        at = at + _MINUTE if is_day else max(midnight, at + _MINUTE)
