"""Times and durations as people type them and as tables show them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
MAX_DURATION: Final = timedelta(days=36_500)


def parse_duration(text: str) -> timedelta:
    """A duration such as `90s`, `30m`, `1h30m`, `7d`.

    Raises:
        ValueError: It is none; the message shows what would be.
    """
    cleaned = text.strip().lower()
    if not _DURATION.fullmatch(cleaned):
        raise ValueError(f"{text!r} is no duration: write 90s, 30m, 1h30m or 7d.")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(cleaned))
    if seconds > MAX_DURATION.total_seconds():
        raise ValueError(f"{text!r} is longer than a century.")
    return timedelta(seconds=seconds)


def parse_moment(text: str, now: datetime) -> datetime:
    """A point in time, aware and in UTC: `-2h` before now, RFC 3339, a date (its midnight, UTC), or `now`.

    A time without an offset is refused: whose clock it means cannot be known.

    Raises:
        ValueError: It is none; the message shows what would be.
    """
    cleaned = text.strip()
    if cleaned.lower() == "now":
        return now
    if cleaned.startswith("-"):
        return now - parse_duration(cleaned[1:])
    try:
        moment = datetime.fromisoformat(cleaned)
    except ValueError as error:
        raise ValueError(f"{text!r} is no time: write -2h, -7d, 2026-05-01 or 2026-05-01T12:00:00Z.") from error
    if len(cleaned) <= len("2026-05-01"):
        return moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset: add Z for UTC, or one such as +02:00.")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside the calendar.") from error


def rfc3339(moment: datetime | None) -> str | None:
    """UTC with microseconds and `Z`, of one fixed width."""
    if moment is None:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def span(duration: timedelta) -> str:
    """A duration in at most two units: `37s`, `4m12s`, `2h05m`, `3d4h`."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < 60:  # noqa: PLR2004 — seconds in a minute
        return f"{seconds}s"
    if seconds < _UNITS["h"]:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < _UNITS["d"]:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"


def age(then: datetime | None, now: datetime) -> str:
    """How long ago, in one unit: `12s ago`, `4m ago`, `2h ago`, `3d ago`; `in 3d` for what is to come."""
    if then is None:
        return "—"
    seconds = int((now - then).total_seconds())
    text = _one_unit(abs(seconds))
    return f"{text} ago" if seconds >= 0 else f"in {text}"


def _one_unit(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
