"""Days, periods and quiet hours around every change of the clock from 2026 to 2028."""

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from app.automations.policy import is_quiet
from app.automations.rule import DoNotify, OnInterval, QuietHours, Rule
from app.engine.times import INSTANT, local_moment, parse_period
from app.insights.screen import SPANS
from app.runs.query import parse
from app.runs.screen_pickers import limits_of
from tests.clock_changes import ZONES, changes

pytestmark = pytest.mark.parametrize("zone", ZONES[::2])


@pytest.fixture(autouse=True)
def there(zone: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    """This machine's zone."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    yield ZoneInfo(zone)
    monkeypatch.undo()
    time.tzset()


def first_of(day: date, zone: ZoneInfo) -> datetime:
    """The first quarter of an hour that is on a local day, found without arithmetic on local time."""
    at = datetime.combine(day, clock(), UTC) - timedelta(hours=15)
    while at.astimezone(zone).date() < day:
        at += timedelta(minutes=15)
    return at


def test_a_picked_day_and_a_day_of_the_chart_have_all_hours_of_the_local_day(zone: str, there: ZoneInfo) -> None:
    """Also where the day begins in a gap."""
    for change in changes(zone):
        middle = change.astimezone(there).date()
        days = [middle + timedelta(days=n) for n in range(-2, 3)]
        starts = [first_of(day, there) for day in days]
        for day, (start, end) in zip(days, pairwise(starts), strict=False):
            since, until = limits_of(day)
            found = parse(f"since:{since} until:{until}", start).filter
            assert (found.since, found.until) == (start, end - INSTANT), day
        edges = SPANS[1].edges(starts[3] + timedelta(hours=12))
        assert list(edges[-5:-1]) == starts[:4]


def test_a_duration_before_now_is_one_of_real_time(zone: str) -> None:
    """Whatever the local clock does; a date is a day of UTC."""
    for change in changes(zone):
        for now in (change + timedelta(hours=n) for n in range(-2, 26)):
            assert parse_period("1d", now.astimezone())[0] == now - timedelta(days=1)
            start, end = parse_period(f"{now:%Y-%m-%d}", now.astimezone())
            assert end - start == timedelta(days=1) - INSTANT


@pytest.mark.parametrize("end", [clock(0, 30), clock(2, 30)])
def test_quiet_hours_end_where_the_local_clock_first_reaches_their_end(zone: str, there: ZoneInfo, end: clock) -> None:
    """At the end of a gap that skips it; on an ordinary night at its time."""
    rule = Rule("r", OnInterval(timedelta(hours=1)), DoNotify("default"), quiet=QuietHours(clock(22), end))
    for change in changes(zone):
        for night in range(-2, 2):
            evening = change.astimezone(there).date() + timedelta(days=night)
            at = local_moment(evening, clock(22))
            assert is_quiet(rule, at)
            assert not is_quiet(rule, at - timedelta(minutes=15))
            while is_quiet(rule, at):
                at += timedelta(minutes=15)
            assert at == local_moment(evening + timedelta(days=1), end)
