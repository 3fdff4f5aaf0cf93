from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.timestamps import as_filter, clock_ahead_s, names_offset, timestamp

MOMENT = datetime(2026, 5, 1, 10, 0, 0, tzinfo=UTC)


def test_all_these_are_the_same_moment() -> None:
    """RFC 3339, the same without an offset, and epoch seconds and milliseconds are read, as far as a time can hold."""
    for received in (
        "2026-05-01T10:00:00Z",
        "2026-05-01t10:00:00z",
        "2026-05-01 10:00:00",
        "2026-05-01T10:00",
        "2026-05-01T10:00:00.000000000Z",
        "2026-05-01T12:00:00+02:00",
        "2026-05-01T12:00:00.0+0200",
        " 2026-05-01T05:00:00-05:00 ",
        1_777_629_600.0,
        1_777_629_600_000,
        "1777629600",
        "1777629600000",
    ):
        assert timestamp(received) == MOMENT, received
    assert timestamp("2026-05-01T10:00:00.123456789Z") == MOMENT + timedelta(microseconds=123_456)


@pytest.mark.parametrize(
    "received",
    [None, True, "", "soon", "2026-13-01T00:00:00Z", "20260501", "2026-W18-5", "0001-01-01T00:00:00+10:00", 10**30, {}],
)
def test_an_unreadable_time_is_none(received: object) -> None:
    """An unreadable time is no reason to fail: the run as received still has it."""
    assert timestamp(received) is None


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=5.5))])))
def test_a_filter_reads_back_as_the_same_moment(moment: datetime) -> None:
    """What is sent in date_from has a fixed width and is exact."""
    try:
        in_utc = moment.astimezone(UTC)
    except OverflowError:
        return
    text = as_filter(in_utc)

    assert len(text) == len("2026-05-01T10:00:00.000000Z")
    assert timestamp(text) == moment


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        *((each, True) for each in ("2026-05-01T10:00Z", "2026-05-01 10:00:00-05:00", 1_777_629_600, "1777629600")),
        *((each, False) for each in ("2026-05-01T10:00:00", "2026-05-01", "soon", "2026-13-01T00:00:00Z", None, {})),
    ],
)
def test_a_local_time_without_an_offset_may_be_any(received: object, *, expected: bool) -> None:
    """It is read as UTC, and proves nothing."""
    assert names_offset(received) == expected


NOON = "Wed, 21 Oct 2026 12:00:00 GMT"
NOON_S = 1_792_584_000


@pytest.mark.parametrize(
    ("date", "ahead_s"), [(NOON, -7_200.0), ("yesterday", None), ("Wed, 21 Oct 2026 25:00:00 GMT", None), ("", None)]
)
def test_the_date_tells_how_far_the_clocks_are_apart(date: str, ahead_s: float | None) -> None:
    """From the middle of the request, to half a second."""
    sent_s = NOON_S + 7_200

    assert clock_ahead_s({"Date": date}, sent_s, sent_s + 1.0) == ahead_s
