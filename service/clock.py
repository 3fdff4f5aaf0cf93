"""Instants are whole microseconds since 1970 (UTC), written as fixed-width RFC 3339.

A text that cannot be parsed raises a `ValueError` that says why.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
SECOND_MICROS: Final = 1_000_000
DAY_MICROS: Final = 86_400 * SECOND_MICROS
CENTURY_MICROS: Final = 100 * 366 * DAY_MICROS

Micros: TypeAlias = int
"""An instant: microseconds since 1970 (UTC)."""
Clock = Callable[[], Micros]
"""A callable that returns the present; injected so that tests can control time."""

_DATE_TIME: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<time>[0-9]{2}:[0-9]{2}):(?P<second>[0-9]{2})"
    r"(?:\.(?P<fraction>[0-9]+))?(?P<zone>[Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_DURATION: Final = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[smhdw])", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|[smhd])")
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_FIRST_INSTANT_S: Final = 1_000_000_000
"""A number of seconds from here on is an instant."""
_LEAP_SECOND: Final = 60
_MICRO_DIGITS: Final = 6


def now_micros() -> Micros:
    return (datetime.now(UTC) - EPOCH) // MICROSECOND


def rfc3339(micros: Micros) -> str:
    """Format an instant as `2025-01-31T08:00:00.000000Z`: always UTC and six digits, so that it sorts as text."""
    # Not strftime: its %Y drops leading zeros here.
    return (EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def rfc3339_or_none(micros: Micros | None) -> str | None:
    return None if micros is None else rfc3339(micros)


def parse_rfc3339(text: str, *, round_up: bool) -> Micros:
    """Parse an RFC 3339 instant with an offset into microseconds.

    Digits beyond the microsecond are rounded up (for the start of a range) or down (for the last instant): ranges
    include both ends.
    """
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 date-time with an offset, such as 2025-01-31T08:00:00Z")
    second = int(match["second"])
    if second > _LEAP_SECOND:
        raise ValueError("there is no such second")
    # Year 0000 is valid in RFC 3339, but not in datetime; year 1 is just as good, since no data is that old.
    date = match["date"].replace("0000-", "0001-", 1) if match["date"].startswith("0000-") else match["date"]
    minute = datetime.fromisoformat(f"{date}T{match['time']}:00+00:00")
    fraction = (match["fraction"] or "").ljust(_MICRO_DIGITS, "0")
    micros = second * SECOND_MICROS + int(fraction[:_MICRO_DIGITS])
    if round_up and fraction[_MICRO_DIGITS:].strip("0"):
        micros += 1
    if (zone := match["zone"]) not in "Zz":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours not in range(24) or minutes not in range(60):
            raise ValueError("there is no such offset")
        micros -= (1 if zone[0] == "+" else -1) * (hours * 3600 + minutes * 60) * SECOND_MICROS
    return (minute - EPOCH) // MICROSECOND + micros


def parse_duration(text: str) -> int:
    """Parse `30d`, `12h`, `15m`, `90s` or `2w` into microseconds; no instant could hold more than a century."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match["count"]) == 0:
        fix = "write a number above 0 and a unit, such as 30d, 12h or 15m"
        raise ValueError(f"{text!r} is not a valid duration; {fix}")
    micros = int(match["count"]) * _UNIT_S[match["unit"]] * SECOND_MICROS
    if micros > CENTURY_MICROS:
        raise ValueError(f"{text!r} is longer than 100 years; write a shorter one, such as 30d")
    return micros


def seconds_until(text: str, now_s: float) -> float | None:
    """Return the seconds until the instant, or of the duration, in a header; None if it is neither.

    An instant is a number of seconds since 1970, in RFC 3339, or an HTTP date; a duration is `30`, `1m30s` or `500ms`.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number >= _FIRST_INSTANT_S:
            return max(0.0, number - now_s)
        return number
    parts = _SPAN.findall(text)
    if parts and "".join(map("".join, parts)) == text:
        return sum(float(number) * (0.001 if unit == "ms" else _UNIT_S[unit]) for number, unit in parts)
    try:
        instant = parse_rfc3339(text, round_up=True) / SECOND_MICROS
    except ValueError:
        try:
            instant = parsedate_to_datetime(text).timestamp()
        except (ValueError, OverflowError):
            return None
    return max(0.0, instant - now_s)


Duration = Annotated[
    str,
    AfterValidator(lambda text: parse_duration(text) and text),
    Field(json_schema_extra={"pattern": r"^\s*(?!0+[smhdw])[0-9]{1,6}[smhdw]\s*$"}),
]
"""A setting that `parse_duration` reads; its pattern shows an editor the texts that it refuses."""
