"""Fire times against an oracle that shares nothing with the library: it walks the minutes of UTC."""

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.rules.fire_times import check_schedule, fire_times, interval_times
from app.rules.rule import OnInterval, OnSchedule

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Sao_Paulo")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTE = timedelta(minutes=1)


def expected(minutes: set[int], hours: set[int], weekdays: set[int], zone: ZoneInfo, day: date) -> list[datetime]:
    """The times of one local day: each fixed time once, moved to the end of a gap, the first of two in a fold."""
    if day.weekday() not in weekdays:
        return []
    return sorted({_instant(datetime.combine(day, time(hour, minute)), zone) for hour in hours for minute in minutes})


def _instant(local: datetime, zone: ZoneInfo) -> datetime:
    at = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None) == local:
        return at
    # In the gap: the first minute of UTC whose local time is later.
    at -= timedelta(hours=3)
    while at.astimezone(zone).replace(tzinfo=None) < local:
        at += MINUTE
    return at


@settings(max_examples=300)
@given(
    zone=st.sampled_from(ZONES),
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=3),
    hours=st.sets(st.integers(0, 23), min_size=1, max_size=3),
    weekdays=st.sets(st.integers(0, 6), min_size=1),
    start=st.dates(date(2023, 1, 1), date(2028, 12, 1)),
)
def test_a_fixed_time_fires_once_a_local_day(
    zone: str, minutes: set[int], hours: set[int], weekdays: set[int], start: date
) -> None:
    """Over leap days, the spring's gap and the autumn's fold, in six zones."""
    where = ZoneInfo(zone)
    # Every other start is the day before a change of the clock.
    start = next(iter(_changes(where, start)), start) - timedelta(days=1) if len(hours) > 1 else start
    begun = datetime.combine(start, time(), where).astimezone(UTC) - timedelta(seconds=1)
    cron = f"{_field(minutes)} {_field(hours)} * * {','.join(DAYS[day] for day in sorted(weekdays))}"
    days = [start + timedelta(days=n) for n in range(4)]
    until = datetime.combine(days[-1] + timedelta(days=1), time(), where).astimezone(UTC)

    found = list(takewhile(lambda at: at < until, fire_times(OnSchedule(cron, zone), "r", begun)))

    assert found == sorted({at for day in days for at in expected(minutes, hours, weekdays, where, day) if at < until})


def _changes(zone: ZoneInfo, start: date) -> list[date]:
    noons = [datetime.combine(start + timedelta(days=n), time(12), zone) for n in range(400)]
    return [b.date() for a, b in pairwise(noons) if a.utcoffset() != b.utcoffset()]


def _field(values: set[int]) -> str:
    return ",".join(str(value) for value in sorted(values))


def test_a_wildcard_follows_the_minutes_of_utc() -> None:
    """Every half hour stays every half hour, also where the clock is set."""
    berlin = OnSchedule("*/30 * * * *", "Europe/Berlin")
    times = list(islice(fire_times(berlin, "r", datetime(2026, 10, 24, 23, 45, tzinfo=UTC)), 8))

    assert {b - a for a, b in pairwise(times)} == {timedelta(minutes=30)}


def test_jitter_moves_each_time_later_and_always_by_the_same() -> None:
    """Two processes agree on it, two rules do not."""
    on = OnSchedule("0 3 * * *", "UTC", timedelta(hours=1))
    start = datetime(2026, 5, 1, tzinfo=UTC)
    mine, again, other = (list(islice(fire_times(on, name, start), 20)) for name in ("a", "a", "b"))

    assert mine == again != other
    assert all(0 <= (at.hour - 3) * 60 + at.minute < 60 for at in mine)
    # From the middle of the jitter's hour, what is still to come is not lost.
    assert next(fire_times(on, "a", mine[3] - timedelta(seconds=1))) == mine[3]


def test_an_interval_counts_from_its_anchor() -> None:
    """Whenever it is asked, and whatever was missed."""
    anchor = datetime(2026, 5, 1, 12, 7, tzinfo=UTC)
    times = interval_times(OnInterval(timedelta(hours=6)), anchor, anchor + timedelta(days=3, minutes=1))

    assert next(times) == anchor + timedelta(days=3, hours=6)


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("0 3 * *", "UTC", "five fields"),
        ("0 3 1 * mon", "UTC", "two automations"),
        ("0 25 * * *", "UTC", "hour"),
        ("0 0 31 2 *", "UTC", "day"),
        ("@daily", "UTC", "five fields"),
        ("* * * * * *", "UTC", "five fields"),
        ("0 3 * * *", "Europe/Berln", "time zone"),
        ("0 3 * * *", "../../etc/passwd", "time zone"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(cron: str, zone: str, words: str) -> None:
    """With what is wrong and what to write."""
    with pytest.raises(ValueError, match=words):
        check_schedule(OnSchedule(cron, zone), datetime(2026, 5, 1, tzinfo=UTC))
