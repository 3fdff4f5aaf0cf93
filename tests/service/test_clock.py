"""Instants and durations as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.clock import EPOCH, MICROSECOND, SECOND_MICROS, parse_duration, parse_rfc3339, rfc3339

INSTANTS = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.just(UTC))
OFFSETS = st.integers(min_value=-23 * 60 - 59, max_value=23 * 60 + 59)


@given(INSTANTS)
def test_what_is_written_is_read_back(instant: datetime) -> None:
    """Writing and reading are inverse, to the microsecond, whichever way is rounded."""
    micros = (instant - EPOCH) // MICROSECOND

    assert parse_rfc3339(rfc3339(micros), round_up=True) == micros
    assert parse_rfc3339(rfc3339(micros), round_up=False) == micros


@given(INSTANTS, INSTANTS)
def test_text_sorts_as_time(one: datetime, other: datetime) -> None:
    """Fixed width: comparing the texts compares the instants."""
    first, second = ((instant - EPOCH) // MICROSECOND for instant in (one, other))

    assert (rfc3339(first) < rfc3339(second)) == (first < second)


@given(INSTANTS, OFFSETS)
def test_an_offset_names_the_same_instant(instant: datetime, minutes: int) -> None:
    """Any offset leads to the same microseconds."""
    local = instant.astimezone(timezone(timedelta(minutes=minutes)))

    assert parse_rfc3339(local.isoformat(timespec="microseconds"), round_up=False) == (instant - EPOCH) // MICROSECOND


def test_digits_beyond_the_microsecond_round_inwards() -> None:
    """The start of a range is rounded up, its end down: what lies outside stays outside."""
    text = "2025-01-31T08:00:00.0000001Z"

    assert parse_rfc3339(text, round_up=True) - parse_rfc3339(text, round_up=False) == 1


def test_a_leap_second_is_the_next_one() -> None:
    """RFC 3339 allows :60."""
    assert parse_rfc3339("2016-12-31T23:59:60Z", round_up=False) == parse_rfc3339(
        "2017-01-01T00:00:00Z", round_up=False
    )


def test_year_zero_is_before_everything() -> None:
    """RFC 3339 allows it; nothing is that old."""
    assert parse_rfc3339("0000-01-01T00:00:00Z", round_up=True) < 0


@pytest.mark.parametrize(
    "text",
    [
        *("", "2025-01-31", "2025-01-31T08:00:00", "2025-01-31T08:00Z", "2025-13-01T00:00:00Z", "٢٠٢٥-01-31T08:00:00Z"),
        *("2025-01-31T24:00:00Z", "2025-01-31T08:00:61Z", "2025-01-31T08:00:00+24:00", "2025-01-31T08:00:00.Z"),
    ],
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    """Naive, incomplete or impossible."""
    with pytest.raises(ValueError, match=r"\S"):
        parse_rfc3339(text, round_up=False)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("2w", 1_209_600)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    """From seconds to weeks."""
    assert parse_duration(text) == seconds * SECOND_MICROS


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1.5h", "1y", "9999999d", "999999w", "36601d"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    """The message shows the form; what lies beyond a century could not be written as a date one day."""
    with pytest.raises(ValueError, match="such as 30d"):
        parse_duration(text)
