"""Fire times: when a schedule or an interval is due.

A fixed time fires once per local day. A time skipped by daylight saving fires at the end of the gap; one that occurs
twice fires the first time.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from app.automations.rule import OnInterval, OnSchedule, Rule
from app.engine.times import span
from app.profiles.values import MistakeError

_FIELDS: Final = 5
_DAY, _WEEKDAY = 2, 4
_MINUTE: Final = timedelta(minutes=1)
_QUARTER: Final = 15
_FIX: Final = "Write five fields, as in '0 3 * * mon-fri': minute, hour, day of the month, month, day of the week."


def check_schedule(on: OnSchedule, now: datetime) -> None:
    """Refuse a schedule that is invalid or never fires, with a `MistakeError` that names the key."""
    fields = on.cron.split()
    if len(fields) != _FIELDS:
        raise MistakeError("schedule", f"{on.cron!r} is not a schedule.", _FIX)
    if not (fields[_DAY].startswith("*") or fields[_WEEKDAY].startswith("*")):
        raise MistakeError(
            "schedule", "a day of the month together with a weekday is ambiguous.", "Write two automations."
        )
    try:
        zone = ZoneInfo(on.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise MistakeError(
            "timezone", f"{on.timezone!r} is not a time zone.", "Write one such as Europe/Berlin or UTC."
        ) from error
    try:
        # In UTC: by the clock on the wall, a time after the end of summer time comes before the one before it.
        times = (local.astimezone(UTC) for local in CronSim(on.cron, now.astimezone(zone)))
        upcoming = list(islice(times, 20))
    except CronSimError as error:
        raise MistakeError("schedule", f"{on.cron!r} is not a schedule ({str(error).lower()}).", _FIX) from error
    if not upcoming:
        raise MistakeError("schedule", f"{on.cron!r} never comes.", "Write a day that its months have.")
    shortest = min((later - at for at, later in pairwise(upcoming)), default=on.jitter)
    if on.jitter > shortest:
        # With so much jitter, one time could come after the next.
        longest = span(shortest.total_seconds())
        raise MistakeError(
            "schedule", f"the jitter is longer than the {longest} between two of its times.", "Write at most that."
        )


def fire_times(on: OnSchedule, name: str, after: datetime) -> Iterator[datetime]:
    """The times after a moment, oldest first, in UTC, each with the jitter for the rule of this name."""
    zone = ZoneInfo(on.timezone)
    # A time may be jittered from before `after` to after it.
    schedule = CronSim(on.cron, (after - on.jitter).astimezone(zone))
    times: Iterator[datetime] = (local.astimezone(UTC) for local in schedule)
    if any(field.startswith("*") for field in on.cron.split()[:_DAY]):
        times = _real_times(schedule, zone, after - on.jitter)
    for at in times:
        digest = hashlib.sha256(f"{name}\0{at.isoformat()}".encode()).digest()
        due = at + timedelta(seconds=int(int.from_bytes(digest[:8]) / 2**64 * on.jitter.total_seconds()))
        if due > after:
            yield due


def _real_times(schedule: CronSim, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The minutes in UTC at which the local clock matches the fields.

    CronSim itself misses some: on days that begin in a gap, and in zones that shift by half an hour.
    """
    at = after.replace(second=0, microsecond=0) + _MINUTE
    day: date | None = None
    while True:
        local = at.astimezone(zone)
        if local.date() != day and not (local.month in schedule.months and schedule.match_day(local.date())):
            next_day = datetime.combine(local.date() + timedelta(days=1), time(), zone).astimezone(UTC)
            at = max(next_day, at + _MINUTE)
            continue
        day = local.date()
        if local.hour not in schedule.hours:
            # Clocks change at quarters of an hour, so advance by one quarter at a time.
            at += (_QUARTER - at.minute % _QUARTER) * _MINUTE
        else:
            if local.minute in schedule.minutes:
                yield at
            at += _MINUTE


def upcoming(rule: Rule, since: datetime, after: datetime) -> Iterator[datetime]:
    """The times of a rule's schedule or interval after a moment; none for any other trigger. `since`: when it began."""
    match rule.on:
        case OnSchedule():
            yield from fire_times(rule.on, rule.name, after)
        case OnInterval(every):
            at = since + max(0, (after - since) // every) * every
            while True:
                at += every
                if at > after:
                    yield at
