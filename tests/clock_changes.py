"""The hours in which clocks are put forward and back."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Auckland",
    "America/Santiago",
    "Africa/Cairo",
)
"""North and south, by half an hour, and at midnight."""


@cache
def changes(zone: str) -> list[datetime]:
    """The starts of the hours from 2026 to 2028 in which a zone's clock is changed, in UTC."""
    place = ZoneInfo(zone)
    hours = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(3 * 366 * 24))
    offsets = ((hour, hour.astimezone(place).utcoffset()) for hour in hours)
    found = [before for (before, first), (_, second) in pairwise(offsets) if first != second]
    assert len(found) == 6
    return found
