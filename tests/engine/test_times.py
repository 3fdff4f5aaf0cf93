from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.timestamps import clock_ahead_s, names_offset, timestamp
from app.engine.times import parse_duration, parse_period, rfc3339
from tests.waiting import present

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
MOMENT = datetime(2026, 5, 1, 10, tzinfo=UTC)


def test_durations_are_read_as_people_write_them() -> None:
    """A duration is one or more numbers with units; anything else is refused, with an example or the limit."""
    seconds = {"90s": 90, "30m": 1800, "1h30m": 5400, "7d": 604_800, "2w": 1_209_600, "0.5s": 0.5, " 5M ": 300}
    assert {text: parse_duration(text).total_seconds() for text in seconds} == seconds
    for text in ("", "30", "m", "-5m", "5 m", "1e3s", "9999999999d", "٣m"):
        with pytest.raises(ValueError, match=r"30m|century"):
            parse_duration(text)


def test_times_are_relative_or_absolute() -> None:
    """Each is aware and in UTC. A time without an offset is ambiguous, and refused."""
    for text, moment in {
        "-2h": datetime(2026, 5, 4, 10, 30, tzinfo=UTC),
        "now": NOW,
        "2026-05-01": datetime(2026, 5, 1, tzinfo=UTC),
        "2026-05-01T12:00:00Z": datetime(2026, 5, 1, 12, tzinfo=UTC),
        "2026-05-01T12:00:00+02:00": datetime(2026, 5, 1, 10, tzinfo=UTC),
    }.items():
        assert parse_period(text, NOW)[0] == moment
    for text in ("2026-05-01T12:00:00", "yesterday", "2026-13-01", "-2", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(ValueError, match=r"offset|valid time|valid duration|calendar"):
            parse_period(text, NOW)


def test_equal_times_are_read_in_every_format() -> None:
    """RFC 3339, the same without an offset, and epochs are read; an unreadable time is None."""
    for received in (
        "2026-05-01T10:00:00Z",
        "2026-05-01T10:00",
        "2026-05-01T12:00:00+02:00",
        "2026-05-01T12:00:00.0+0200",
        1_777_629_600_000,
        "1777629600000",
    ):
        assert timestamp(received) == MOMENT, received
    assert timestamp("2026-05-01T10:00:00.123456789Z") == MOMENT + timedelta(microseconds=123_456)
    odd = (None, True, "", "soon", "2026-13-01T00:00:00Z", "20260501", "2026-W18-5", "0001-01-01T00:00:00+10:00")
    placeholders = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", -62_135_596_800)
    assert [timestamp(received) for received in (*odd, *placeholders, 10**30, {})] == [None] * 13


@given(
    st.datetimes(
        datetime(1900, 1, 2),
        datetime(8999, 12, 30),
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=5.5))]),
    )
)
def test_a_printed_time_is_accepted(moment: datetime) -> None:
    """A printed time is accepted by other commands; date_from has a fixed width."""
    text = present(rfc3339(moment))

    assert len(text) == len("2026-05-01T10:00:00.000000Z")
    assert timestamp(text) == parse_period(text, NOW)[0] == moment


def test_the_date_header_gives_the_clock_difference() -> None:
    """The difference is measured from the middle of the request, to half a second.

    A time without an offset proves nothing.
    """
    sent_s = 1_792_584_000 + 7_200

    assert clock_ahead_s({"Date": "Wed, 21 Oct 2026 12:00:00 GMT"}, sent_s, sent_s + 1.0) == -7_200.0
    for date in ("yesterday", "Wed, 21 Oct 2026 25:00:00 GMT", ""):
        assert clock_ahead_s({"Date": date}, sent_s, sent_s + 1.0) is None
    for received in ("2026-05-01T10:00Z", "2026-05-01 10:00:00-05:00", 1_777_629_600, "1777629600"):
        assert names_offset(received)
    for received in ("2026-05-01T10:00:00", "2026-05-01", "soon", "2026-13-01T00:00:00Z", None, {}):
        assert not names_offset(received)
