"""Fire times, days and quiet hours across every clock change, and impossible schedules."""

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from datetime import time as clock
from functools import cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from app.automations.fire_times import check_schedule, fire_times, upcoming
from app.automations.occurrences import LOOK_BACK, due_times
from app.automations.rule import DoNotify, OnInterval, OnSchedule, QuietHours, Rule, is_quiet
from app.engine.times import local_moment
from service import rules as service_times
from service.clock import EPOCH, MICROSECOND

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "America/Santiago",
    "Africa/Cairo",
)
"""Zones in the north and south, with half-hour changes, and with changes at midnight."""


@cache
def changes(zone: str) -> list[datetime]:
    """The hours from 2026 to 2028 in which a zone's clock changes, as UTC starts."""
    place = ZoneInfo(zone)
    hours = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(3 * 366 * 24))
    offsets = ((hour, hour.astimezone(place).utcoffset()) for hour in hours)
    found = [before for (before, first), (_, second) in pairwise(offsets) if first != second]
    assert len(found) == 6
    return found


def of_the_service(cron: str, zone: str, after: datetime) -> Iterator[datetime]:
    """The same schedule's times in the service, which shares no code with the program."""
    start = (after - EPOCH) // MICROSECOND
    return (EPOCH + at * MICROSECOND for at in service_times.fire_times(cron, zone, start))


def test_jitter_moves_each_time_later_and_always_by_the_same() -> None:
    """Two processes get the same offset, two rules different ones."""
    on = OnSchedule("0 3 * * *", "UTC", timedelta(hours=1))
    start = datetime(2026, 5, 1, tzinfo=UTC)
    mine, again, other = (list(islice(fire_times(on, name, start), 20)) for name in ("a", "a", "b"))

    assert mine == again != other
    assert all(0 <= (at.hour - 3) * 60 + at.minute < 60 for at in mine)
    # From the middle of the jitter's hour, remaining times are not lost.
    assert next(fire_times(on, "a", mine[3] - timedelta(seconds=1))) == mine[3]
    # An interval counts from its anchor, whenever it is calculated, and whatever was missed.
    anchor = datetime(2026, 5, 1, 12, 7, tzinfo=UTC)
    every = Rule("every", OnInterval(timedelta(hours=6)), DoNotify("default"))
    times = upcoming(every, anchor, anchor + timedelta(days=3, minutes=1))
    assert next(times) == anchor + timedelta(days=3, hours=6)


def test_a_schedule_that_cannot_be_meant_is_refused() -> None:
    """The error says what is wrong and what to write; jitter must be shorter than the shortest interval."""
    at = datetime(2026, 5, 1, tzinfo=UTC)
    for cron, zone, minutes, words in (
        ("0 3 1 * mon", "UTC", 0, "two automations"),
        ("0 0 31 2 *", "UTC", 0, "day"),
        ("* * * * * *", "UTC", 0, "five fields"),
        ("0 3 * * *", "../../etc/passwd", 0, "time zone"),
        ("*/5 * * * *", "UTC", 6, "the jitter is longer than"),
    ):
        with pytest.raises(ValueError, match=words):
            check_schedule(OnSchedule(cron, zone, timedelta(minutes=minutes)), at)
        if not minutes:
            with pytest.raises(ValueError, match=words.replace("automations", "rules")):
                service_times.check_schedule(cron, zone)
    for cron, minutes in (("*/5 * * * *", 5), ("0,50 * * * *", 10)):
        check_schedule(OnSchedule(cron, "UTC", timedelta(minutes=minutes)), at)


@pytest.mark.parametrize("zone", ZONES[::2])
def test_no_change_of_the_clock_makes_a_schedule_invalid(zone: str) -> None:
    """The schedule is checked at every third hour of the day around the change; its times only increase."""
    schedules = [OnSchedule(cron, zone) for cron in ("*/30 * * * *", "15,45 1-3 * * *")]
    for change in changes(zone):
        for on in schedules:
            for hours in (*range(-26, -3, 3), *range(-3, 4)):
                check_schedule(on, change + timedelta(hours=hours))
            times = list(islice(fire_times(on, "r", change - timedelta(days=1)), 60))
            assert times == sorted(set(times))
            assert times == list(islice(of_the_service(on.cron, zone, change - timedelta(days=1)), 60))


def test_a_fixed_time_comes_once_a_local_day() -> None:
    """A skipped time fires after the gap, a repeated one the first time only; steps of minutes fire in both hours."""
    for cron, zone, after, times in (
        ("30 2 * * *", "Europe/Berlin", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-10-25 00:00", ["2026-10-25 00:30", "2026-10-25 01:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 01:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        ("0 0 29 2 *", "UTC", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
    ):
        since = datetime.fromisoformat(f"{after}+00:00")
        for found in (fire_times(OnSchedule(cron, zone), "r", since), of_the_service(cron, zone, since)):
            assert [f"{at:%Y-%m-%d %H:%M}" for at in islice(found, 2)] == times, cron


@pytest.mark.parametrize("seed", range(6))
def test_each_time_is_decided_on_once_however_the_clock_jumps(seed: int) -> None:
    """The newest time fires once, never early, and the missed ones are counted.

    The clock may be suspended for days, set back, or read late.
    """
    dice, since = random.Random(seed), datetime(2026, 3, 28, tzinfo=UTC)
    on = OnSchedule(dice.choice(("*/20 * * * *", "30 2 * * *", "0 */6 * * *")), "Europe/Berlin")
    rule = Rule("r", on, DoNotify("default"), catch_up=dice.choice((timedelta(hours=1), timedelta(days=3))))
    times, now, decided = list(islice(fire_times(on, "r", since), 700)), since, list[datetime]()
    for _ in range(12):
        now = max(since, now + dice.choice([timedelta(hours=hours) for hours in (0.2, 0.2, 5, 24, -3)]))
        last = max((at for at in decided if at <= now), default=None)
        come = due_times(rule, since, last, now)
        passed = [at for at in times if max(last or since, now - max(LOOK_BACK, rule.catch_up)) < at <= now]

        assert come == passed
        assert not set(decided) & set(come[-1:])
        decided += come[-1:]


@pytest.fixture(params=ZONES[::2])
def there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    """Sets this machine's zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield ZoneInfo(request.param)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("end", [clock(0, 30), clock(2, 30)])
def test_quiet_hours_end_where_the_local_clock_first_reaches_their_end(there: ZoneInfo, end: clock) -> None:
    """A skipped end moves to the end of the gap; on an ordinary night it is the configured time."""
    rule = Rule("r", OnInterval(timedelta(hours=1)), DoNotify("default"), quiet=QuietHours(clock(22), end))
    for change in changes(there.key):
        for night in range(-2, 2):
            evening = change.astimezone(there).date() + timedelta(days=night)
            at = local_moment(evening, clock(22))
            assert is_quiet(rule, at)
            assert not is_quiet(rule, at - timedelta(minutes=15))
            while is_quiet(rule, at):
                at += timedelta(minutes=15)
            assert at == local_moment(evening + timedelta(days=1), end)
