"""Times and limits in an answer's headers."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_LONGEST_WAIT_S: Final = 86_400.0
"""A day: after that, asking again costs less than a mistaken header."""
_AN_INSTANT: Final = 1e9
"""A larger reset is an instant in seconds since 1970, not a wait."""
_PREFIXES: Final = ("RateLimit-", "X-RateLimit-", "X-Rate-Limit-")


def retry_after_s(header: str, sent_at: str | None = None) -> float | None:
    """Seconds to wait, 0 to a day; None: the header cannot be read.

    A date is relative to the answer's own Date if it has one: the two clocks may differ.
    """
    text = header.strip()
    if (seconds := _number(text)) is not None:
        return min(seconds, _LONGEST_WAIT_S)
    until = _http_date(text)
    if until is None:
        return None
    start = (None if sent_at is None else _http_date(sent_at)) or datetime.now(UTC)
    return min(max(0.0, (until - start).total_seconds()), _LONGEST_WAIT_S)


def spent_for_s(headers: Mapping[str, str]) -> float | None:
    """Seconds until requests are allowed again, if this answer spent the limit; None: it did not.

    The usual header names are known, with the reset in seconds or as an instant.
    """
    for prefix in _PREFIXES:
        remaining, reset = (_number(headers.get(prefix + name, "")) for name in ("Remaining", "Reset"))
        if remaining is None or reset is None:
            continue
        if remaining >= 1:
            return None
        sent_at = _http_date(headers.get("Date", "")) or datetime.now(UTC)
        wait_s = reset - sent_at.timestamp() if reset > _AN_INSTANT else reset
        return min(max(0.0, wait_s), _LONGEST_WAIT_S)
    return None


def clock_ahead_s(headers: Mapping[str, str], sent_s: float, received_s: float) -> float | None:
    """How many seconds the service's clock is ahead of ours; None: not stated.

    The request was sent and its answer received at those moments, in seconds since 1970 by our clock.
    """
    sent_at = _http_date(headers.get("Date", ""))
    # The header shows whole seconds: on average half a second more has passed.
    return None if sent_at is None else sent_at.timestamp() + 0.5 - (sent_s + received_s) / 2


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,9})?", text.strip()) else None


def _http_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
