"""Times and waits in answers, in all formats that services use."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from storage.values import EPOCH

_NUMBER: Final = re.compile(r"-?\d{9,16}(\.\d+)?")
_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d:?\d\d)?)?")
_EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Times beyond these are placeholders (`0001-01-01`), and adding to them could leave the calendar."""
_FIRST_MILLISECONDS: Final = 1e11
"""The smallest number read as milliseconds: as seconds it would be the year 5138, as milliseconds it is 1973."""


def timestamp(received: object) -> datetime | None:
    """A time from RFC 3339, the same without an offset (taken as UTC), or epoch seconds or milliseconds.

    None: it cannot be read as any of these, or lies outside the years 1900 to 8999.
    """
    text = received.strip() if isinstance(received, str) else ""
    try:
        if _DATE_TIME.fullmatch(text):
            moment = datetime.fromisoformat(text.upper())
            if moment.tzinfo is not UTC:
                moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        else:
            count = float(text) if _NUMBER.fullmatch(text) else received
            if not isinstance(count, int | float) or isinstance(count, bool):
                return None
            is_in_seconds = abs(count) < _FIRST_MILLISECONDS
            moment = EPOCH + (timedelta(seconds=count) if is_in_seconds else timedelta(milliseconds=count))
    except (OverflowError, ValueError):
        return None
    return moment if _EARLIEST <= moment < _LATEST else None


def names_offset(received: object) -> bool:
    """Whether a received time is unambiguous: a local time without an offset is not."""
    match = _DATE_TIME.fullmatch(received.strip()) if isinstance(received, str) else None
    return timestamp(received) is not None and (match is None or match[4] is not None)


_MAX_WAIT_S: Final = 86_400.0
"""A day: after that, asking again costs less than a mistaken header."""


def retry_after_s(header: str, sent_at: str | None = None) -> float | None:
    """Seconds to wait, 0 to a day, or None if the header cannot be read.

    A date is relative to the answer's own Date if it has one: the two clocks may differ.
    """
    text = header.strip()
    if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text):
        return min(float(text), _MAX_WAIT_S)
    until = _http_date(text)
    if until is None:
        return None
    start = (None if sent_at is None else _http_date(sent_at)) or datetime.now(UTC)
    return min(max(0.0, (until - start).total_seconds()), _MAX_WAIT_S)


def clock_ahead_s(headers: Mapping[str, str], sent_s: float, received_s: float) -> float | None:
    """How many seconds the service's clock is ahead of this machine's, or None if that is not stated.

    The request was sent and its answer received at those moments, in seconds since 1970 by our clock.
    """
    sent_at = _http_date(headers.get("Date", ""))
    # The header shows whole seconds: on average half a second more has passed.
    if sent_at is None:
        return None
    return sent_at.timestamp() + 0.5 - (sent_s + received_s) / 2


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
