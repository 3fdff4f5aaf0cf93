"""Fire times: intervals, jitter, and schedules that cannot be meant; test_schedule_oracle.py has the rest."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from app.rules.fire_times import check_schedule, fire_times, interval_times
from app.rules.rule import OnInterval, OnSchedule


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


@pytest.mark.parametrize(("cron", "minutes"), [("*/5 * * * *", 6), ("0,50 * * * *", 11)])
def test_a_jitter_by_which_times_would_overtake_each_other_is_refused(cron: str, minutes: int) -> None:
    """One that is as long as the shortest time between two of them is not."""
    at = datetime(2026, 5, 1, tzinfo=UTC)
    check_schedule(OnSchedule(cron, "UTC", timedelta(minutes=minutes - 1)), at)
    with pytest.raises(ValueError, match="the jitter is longer than"):
        check_schedule(OnSchedule(cron, "UTC", timedelta(minutes=minutes)), at)
