"""Schedules against an oracle that shares nothing with them: it walks the minutes of UTC through zoneinfo."""

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from app.automations.occurrences import LOOK_BACK, Anchor, due
from app.rules.fire_times import fire_times
from app.rules.rule import DoNotify, OnSchedule, Rule

MINUTE = timedelta(minutes=1)
DAYS = 4
ZONES = {
    "UTC": (),
    "Europe/Berlin": ((2026, 3, 28), (2026, 10, 24)),
    "America/New_York": ((2026, 3, 7), (2026, 10, 31)),
    "Africa/Cairo": ((2026, 4, 23), (2026, 10, 28)),
    "Australia/Lord_Howe": ((2026, 4, 4), (2026, 10, 3)),
    "America/Sao_Paulo": ((2018, 11, 3), (2019, 2, 16)),
    "Asia/Kathmandu": (),
    "Pacific/Apia": ((2011, 12, 28),),
}
"""With days just before the clock is set; Apia left out a whole day."""
ORDINARY = ((2024, 2, 27), (2023, 2, 27), (2025, 12, 30), (2026, 7, 1))
"""Leap days, the turn of a year, and a day like any other."""
DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Fields(NamedTuple):
    """What a schedule asks for, and how it is written."""

    cron: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    @property
    def is_fixed(self) -> bool:
        minute, hour, *_ = self.cron.split()
        return not (minute.startswith("*") or hour.startswith("*"))

    def holds(self, day: date) -> bool:
        return day.day in self.days and day.month in self.months and day.weekday() in self.weekdays


class Walk(NamedTuple):
    """Each minute of UTC around some days, with the local time that a clock on the wall shows."""

    shown: dict[tuple[int, int], list[tuple[datetime, datetime]]]
    """By hour and minute: when it was so by UTC, and the local time."""
    skipped: list[tuple[datetime, datetime]]
    """The first minute of UTC after a gap, with each local time that the gap left out."""


@cache
def walk(zone: str, start: tuple[int, int, int]) -> Walk:
    """From half a day before these days to the end of them."""
    where, found = ZoneInfo(zone), Walk({}, [])
    begin = datetime(*start, tzinfo=UTC) - timedelta(hours=14)
    utc = [begin + n * MINUTE for n in range((DAYS + 1) * 1440)]
    minutes = [(at, at.astimezone(where).replace(tzinfo=None)) for at in utc]
    for at, on in minutes:
        found.shown.setdefault((on.hour, on.minute), []).append((at, on))
    for (_, before), (at, after) in pairwise(minutes):
        found.skipped.extend((at, before + n * MINUTE) for n in range(1, int((after - before) / MINUTE)))
    return found


def expected(fields: Fields, zone: str, start: tuple[int, int, int]) -> set[datetime]:
    """Real time where minute or hour has a `*`; else each fixed time once a local day, out of the gap."""
    shown, skipped = walk(zone, start)
    there = [each for hour in fields.hours for minute in fields.minutes for each in shown.get((hour, minute), ())]
    if not fields.is_fixed:
        return {at for at, on in there if fields.holds(on.date())}
    first: dict[datetime, datetime] = {}
    for at, on in there:
        first.setdefault(on, at)
    found = {at for on, at in first.items() if fields.holds(on.date())}
    left_out = ((at, on) for at, on in skipped if on.hour in fields.hours and on.minute in fields.minutes)
    return found | {at for at, on in left_out if fields.holds(on.date())}


def field(dice: random.Random, low: int, high: int, *, is_star: bool) -> tuple[str, frozenset[int]]:
    """One field, as a list, a range, a step or a star."""
    every = frozenset(range(low, high + 1))
    if is_star:
        step = dice.choice((1, 1, 2, 5, 15))
        return ("*" if step == 1 else f"*/{step}"), frozenset(range(low, high + 1, step))
    if dice.random() < 0.3:
        begin = dice.randint(low, high - 1)
        end, step = dice.randint(begin + 1, high), dice.choice((1, 2, 7))
        return f"{begin}-{end}{f'/{step}' if step > 1 else ''}", frozenset(range(begin, end + 1, step))
    chosen = sorted(dice.sample(sorted(every), dice.randint(1, 3)))
    return ",".join(map(str, chosen)), frozenset(chosen)


def schedule(dice: random.Random, start: date) -> Fields:
    """A schedule that may come within the days after this one, mostly at the hours in which clocks are set."""
    minute, minutes = field(dice, 0, 59, is_star=dice.random() < 0.3)
    hour, hours = field(dice, 0, 23 if dice.random() < 0.4 else 3, is_star=dice.random() < 0.3)
    if hour.startswith("*"):
        step = int(hour.partition("/")[2] or 1)
        hours = frozenset(range(0, 24, step))
    day, days = "*", frozenset(range(1, 32))
    weekday, weekdays = "*", frozenset(range(7))
    month, months = "*", frozenset(range(1, 13))
    match dice.randrange(4):
        case 0:
            days = frozenset((start + timedelta(days=n)).day for n in range(dice.randint(1, DAYS)))
            day = ",".join(map(str, sorted(days)))
        case 1:
            weekdays = frozenset(dice.sample(range(7), dice.randint(1, 6)))
            weekday = ",".join(DAY_NAMES[number] for number in sorted(weekdays))
        case 2:
            months = frozenset({start.month, dice.randint(1, 12)})
            month = ",".join(map(str, sorted(months)))
    return Fields(f"{minute} {hour} {day} {month} {weekday}", minutes, hours, days, months, weekdays)


def cases(number: int) -> Iterator[tuple[str, tuple[int, int, int], Fields]]:
    """So many of them, the same each time."""
    dice = random.Random(11)
    zones = list(ZONES)
    for _ in range(number):
        zone = dice.choice(zones)
        start = dice.choice((*ZONES[zone] * 3, *ORDINARY))
        yield zone, start, schedule(dice, date(*start))


@pytest.mark.parametrize("number", [100, pytest.param(4_000, marks=pytest.mark.campaign)])
def test_a_schedule_comes_when_the_clock_on_the_wall_says_so(number: int) -> None:
    """Over gaps, folds, half hours, leap days, a day that was left out, and from any moment in between."""
    dice = random.Random(12)
    for zone, start, fields in cases(number):
        oracle = sorted(expected(fields, zone, start))
        after = datetime(*start, tzinfo=UTC) + dice.randrange(2 * 86_400) * timedelta(seconds=1)
        until = datetime(*start, tzinfo=UTC) + timedelta(days=DAYS - 1)
        found = list(takewhile(lambda at, end=until: at < end, fire_times(OnSchedule(fields.cron, zone), "r", after)))

        assert found == [at for at in oracle if after < at < until], (fields.cron, zone, start, after)


@pytest.mark.parametrize("number", [100, pytest.param(1_000, marks=pytest.mark.campaign)])
def test_each_time_is_decided_on_once_however_the_clock_jumps(number: int) -> None:
    """Suspended for days, set back and forth, polled late: never twice, never early, the newest, and none uncounted."""
    dice = random.Random(13)
    for zone, start, fields in cases(number):
        oracle = sorted(expected(fields, zone, start))
        catch_up = dice.choice((MINUTE, timedelta(hours=1), timedelta(days=3)))
        rule = Rule("r", OnSchedule(fields.cron, zone), DoNotify("default"), catch_up=catch_up)
        now = since = datetime(*start, tzinfo=UTC) + dice.randrange(86_400) * timedelta(seconds=1)
        decided: list[datetime] = []
        for _ in range(12):
            now += dice.choice((10 * MINUTE, 10 * MINUTE, timedelta(hours=5), timedelta(days=1), timedelta(hours=-3)))
            now = max(since, min(now, datetime(*start, tzinfo=UTC) + timedelta(days=DAYS - 1)))
            last = max((at for at in decided if at <= now), default=None)
            come = due(rule, Anchor(since, last), now)
            horizon = max(since, last or since, now - max(LOOK_BACK, catch_up))
            passed = [at for at in oracle if horizon < at <= now]

            case = (fields.cron, zone, start, now, decided)
            assert (come.newest is None) == (not passed), case
            if come.newest is not None:
                assert (come.newest.at, come.missed) == (passed[-1], len(passed) - 1), case
                assert come.newest.at not in decided, case
                decided.append(come.newest.at)
