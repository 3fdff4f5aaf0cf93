"""Times and durations as text: `7d`, a date, RFC 3339, `4m ago`."""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from storage import UnreadableTextError

_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+"
_PART: Final = r"([0-9]+(?:\.[0-9]+)?)([smhdw])"
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
MAX_DURATION: Final = timedelta(days=36_500)
INSTANT: Final = timedelta(microseconds=1)
"""The smallest difference between two times."""
DATED_AFTER: Final = timedelta(days=1)
"""The age from which on a time is shown instead of an age: half of a list would read `1d ago`."""


def parse_duration(text: str) -> timedelta:
    """A duration such as `90s`, `30m`, `1h30m`, `7d`; the message of a `ValueError` shows examples."""
    cleaned = text.strip().lower()
    if not re.fullmatch(_DURATION, cleaned):
        raise UnreadableTextError(f"{text!r} is not a valid duration.", "Write 90s, 30m, 1h30m or 7d.")
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(_PART, cleaned))
    if seconds > MAX_DURATION.total_seconds():
        raise UnreadableTextError(f"{text!r} is longer than a century.", f"Write at most {MAX_DURATION.days}d.")
    return timedelta(seconds=seconds)


def parse_period(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The first and the last instant of a time, aware and in UTC.

    `7d` and `-7d` are an instant before now, `now` is now, RFC 3339 is that instant, and a date is its day in UTC. A
    time without an offset is refused: it could mean any time zone. The message of a `ValueError` shows examples.
    """
    cleaned = text.strip()
    if cleaned.lower() == "now":
        return now, now
    if cleaned.startswith("-") or re.fullmatch(_DURATION, cleaned.lower()):
        moment = now - parse_duration(cleaned.removeprefix("-"))
        return moment, moment
    try:
        moment = datetime.fromisoformat(cleaned)
    except ValueError as error:
        raise UnreadableTextError(
            f"{text!r} is not a valid time.", "Write 2h, 7d, 2026-05-01 or 2026-05-01T12:00:00Z."
        ) from error
    if re.fullmatch(_DATE, cleaned):
        moment = moment.replace(tzinfo=UTC)
        # Not the next midnight minus an instant: the calendar's last day has no next midnight.
        return moment, moment + (timedelta(days=1) - INSTANT)
    if moment.tzinfo is None:
        raise UnreadableTextError(f"{text!r} has no offset.", "Add Z for UTC, or one such as +02:00.")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise UnreadableTextError(f"{text!r} is outside the calendar.", "Write 2h, 7d or 2026-05-01.") from error
    return moment, moment


def local_moment(day: date, at: time = time.min) -> datetime:
    """A time of a local day, in UTC: in a gap of the clock its end, in a fold the first of the two."""
    wall = datetime.combine(day, at)
    first = datetime.fromtimestamp(min(wall.timestamp(), wall.replace(fold=1).timestamp()), UTC)
    while first.astimezone().replace(tzinfo=None) < wall:
        first += timedelta(minutes=1)
    return first


def rfc3339(moment: datetime | None) -> str | None:
    """UTC with microseconds and `Z`, of one fixed width; None stays None."""
    if moment is None:
        return None
    # Not strftime: it takes twice as long, and a list has three times for each run.
    return f"{moment.astimezone(UTC).isoformat(timespec='microseconds').removesuffix('+00:00')}Z"


def age(then: datetime, now: datetime) -> str:
    """How long ago, in one unit: `now`, `12s`, `4m`, `3h`, `2d`; `in 5m` if the other clock is ahead."""
    seconds = int((now - then).total_seconds())
    if seconds <= -_UNIT_S["m"]:
        return f"in {_one_unit(-seconds)}"
    return _one_unit(seconds) if seconds > 0 else "now"


def ago(then: datetime, now: datetime) -> str:
    """How long ago, as a phrase: `4m ago`, `just now`."""
    text = age(then, now)
    if text == "now":
        return "just now"
    return text if text.startswith("in ") else f"{text} ago"


def roughly_ago(then: datetime, now: datetime) -> str:
    """Like `ago`, but `just now` for the first minute, so facts that each poll confirms do not count seconds."""
    if 0 <= (now - then).total_seconds() < _UNIT_S["m"]:
        return "just now"
    return ago(then, now)


def exact_ago(then: datetime | None, now: datetime) -> str:
    """Like `ago`, but to the second before and after now: `0s ago`, `in 5s`; `—` if unknown."""
    if then is None:
        return "—"
    seconds = int((now - then).total_seconds())
    if seconds >= 0:
        return f"{_one_unit(seconds)} ago"
    return f"in {_one_unit(-seconds)}"


def start_text(then: datetime | None, now: datetime) -> str:
    """When something started, in at most twelve cells: `4m ago`, `12 Apr 07:38`, `12 Apr 2025`; `-` if unknown."""
    if then is None:
        return "-"
    if now - then < DATED_AFTER:
        return ago(then, now).removeprefix("just ")
    local, today = then.astimezone(), now.astimezone()
    if local.year == today.year:
        return f"{local.day} {local:%b %H:%M}"
    return f"{local.day} {local:%b %Y}"


def span(seconds: float, *, pads_hours: bool = True) -> str:
    """A duration in its two largest units: `37s`, `4m12s`, `1h05m`, and `2d03h` or, unpadded, `2d3h`."""
    whole = max(0, int(seconds))
    if whole < _UNIT_S["m"]:
        return f"{whole}s"
    if whole < _UNIT_S["h"]:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < _UNIT_S["d"]:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:{'02' if pads_hours else ''}}h"


def clock_time(at: datetime, now: datetime) -> str:
    """A moment in local time: `14:02:11` today, `12 Apr 14:02` this year, with the year before that."""
    local = at.astimezone()
    if local.date() == now.astimezone().date():
        return f"{local:%H:%M:%S}"
    return f"{day(at, now)} {local:%H:%M}"


def stamp(at: datetime) -> str:
    """A moment in full, in local time with its zone: `2026-04-12 14:02:11 CEST`."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def day(at: datetime, now: datetime) -> str:
    """A date in local time: `12 Apr`, with the year unless it is the current one."""
    local = at.astimezone()
    if local.year == now.astimezone().year:
        return f"{local.day} {local:%b}"
    return f"{local.day} {local:%b %Y}"


def clocks_apart(ahead: timedelta) -> str:
    way = "ahead of" if ahead > timedelta(0) else "behind"
    return f"The service's clock is {span(abs(ahead).total_seconds())} {way} this machine's."


def _one_unit(seconds: int) -> str:
    unit = next((unit for unit in ("d", "h", "m") if seconds >= _UNIT_S[unit]), "s")
    return f"{seconds // _UNIT_S[unit]}{unit}"
