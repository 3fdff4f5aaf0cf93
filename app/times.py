"""Times and durations as people write and read them: `7d`, a date with all of its day, RFC 3339, `4m ago`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MAX_DURATION: Final = timedelta(days=36_500)
INSTANT: Final = timedelta(microseconds=1)
"""The smallest difference between two times."""


def parse_duration(text: str) -> timedelta:
    """A duration such as `90s`, `30m`, `1h30m`, `7d`.

    Raises:
        ValueError: The text is not a duration; the message shows examples.
    """
    cleaned = text.strip().lower()
    if not _DURATION.fullmatch(cleaned):
        raise ValueError(f"{text!r} is not a valid duration: write 90s, 30m, 1h30m or 7d.")
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(cleaned))
    if seconds > MAX_DURATION.total_seconds():
        raise ValueError(f"{text!r} is longer than a century.")
    return timedelta(seconds=seconds)


def parse_period(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The first and the last instant of a time, aware and in UTC.

    `7d` and `-7d` are an instant before now, `now` is now, RFC 3339 is that instant, and a date is its day in UTC. A
    time without an offset is refused: it could mean any time zone.

    Raises:
        ValueError: The text is not a time; the message shows examples.
    """
    cleaned = text.strip()
    if cleaned.lower() == "now":
        return now, now
    if cleaned.startswith("-") or _DURATION.fullmatch(cleaned.lower()):
        moment = now - parse_duration(cleaned.removeprefix("-"))
        return moment, moment
    moment = _absolute(text, cleaned)
    if not _DATE.fullmatch(cleaned):
        return moment, moment
    # Not the next midnight minus an instant: the calendar's last day has none.
    return moment, moment + (timedelta(days=1) - INSTANT)


def _absolute(text: str, cleaned: str) -> datetime:
    try:
        moment = datetime.fromisoformat(cleaned)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a valid time: write 2h, 7d, 2026-05-01 or 2026-05-01T12:00:00Z.") from error
    if _DATE.fullmatch(cleaned):
        return moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset: add Z for UTC, or one such as +02:00.")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside the calendar.") from error


def rfc3339(moment: datetime | None) -> str | None:
    """UTC with microseconds and `Z`, of one fixed width; None stays None."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def span(duration: timedelta) -> str:
    """A duration in at most two units: `37s`, `4m12s`, `2h05m`, `3d4h`."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < _UNIT_S["m"]:
        return f"{seconds}s"
    if seconds < _UNIT_S["h"]:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < _UNIT_S["d"]:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"


def age(then: datetime | None, now: datetime) -> str:
    """How long ago, in one unit: `12s ago`, `4m ago`, `2h ago`, `3d ago`; `in 3d` for what is to come."""
    if then is None:
        return "—"
    seconds = int((now - then).total_seconds())
    unit = next((unit for unit in ("d", "h", "m") if abs(seconds) >= _UNIT_S[unit]), "s")
    text = f"{abs(seconds) // _UNIT_S[unit]}{unit}"
    return f"{text} ago" if seconds >= 0 else f"in {text}"
