"""Times and durations as people type them and as tables show them."""

from datetime import datetime, timedelta
from typing import Final

from app.moments import parse_duration, parse_period, rfc3339

__all__ = ["age", "parse_duration", "parse_moment", "parse_period", "rfc3339", "span"]

_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


def parse_moment(text: str, now: datetime) -> datetime:
    """A point in time, aware and in UTC: `-2h` or `2h` before now, RFC 3339, a date (its midnight, UTC), or `now`.

    A time without an offset is refused: whose clock it means cannot be known.

    Raises:
        ValueError: It is none; the message shows what would be.
    """
    return parse_period(text, now)[0]


def span(duration: timedelta) -> str:
    """A duration in at most two units: `37s`, `4m12s`, `2h05m`, `3d4h`."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < 60:  # noqa: PLR2004 — seconds in a minute
        return f"{seconds}s"
    if seconds < _HOUR_S:
        return f"{seconds // 60}m{seconds % 60:02}s"
    if seconds < _DAY_S:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // _DAY_S}d{seconds % _DAY_S // 3600}h"


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
