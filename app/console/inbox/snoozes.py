"""Until when an item of the inbox can be put off."""

from datetime import date, datetime, time, timedelta
from typing import Final

MORNING: Final = time(8)
_MONDAY: Final = 7


def snoozes(now: datetime) -> tuple[tuple[str, datetime], ...]:
    """The ends of a snooze: an hour, tomorrow morning and Monday morning, by the local clock."""
    today = now.astimezone().date()
    hour, tomorrow = now + timedelta(hours=1), _morning(today + timedelta(days=1))
    monday = _morning(today + timedelta(days=_MONDAY - today.weekday()))
    return (
        (f"an hour, until {hour.astimezone():%H:%M}", hour),
        (f"until tomorrow morning, {tomorrow.astimezone():%a %H:%M}", tomorrow),
        (f"until Monday, {monday.astimezone():%d %b %H:%M}", monday),
    )


def _morning(day: date) -> datetime:
    # A naive time is local: it is eight by the wall clock also after the clocks changed.
    return datetime.combine(day, MORNING).astimezone()
