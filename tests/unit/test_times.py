from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.times import exact_ago, parse_duration, parse_period, rfc3339, span

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("7d", 604_800), ("2w", 1_209_600), ("0.5s", 0.5), (" 5M ", 300)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """A number and a unit, or several of them."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "5 m", "1e3s", "soon", "9999999999d", "٣m"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    """The message shows what would be one, or says that it is too long."""
    with pytest.raises(ValueError, match=r"30m|century"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("-2h", datetime(2026, 5, 4, 10, 30, tzinfo=UTC)),
        ("now", NOW),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("2026-05-01T12:00:00Z", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("2026-05-01T12:00:00+02:00", datetime(2026, 5, 1, 10, tzinfo=UTC)),
        ("2026-05-01T12:00:00.123456Z", datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)),
    ],
)
def test_moments_are_relative_or_absolute(text: str, moment: datetime) -> None:
    """Every one of them comes out aware and in UTC."""
    assert parse_period(text, NOW)[0] == moment


@pytest.mark.parametrize("text", ["2026-05-01T12:00:00", "yesterday", "2026-13-01", "-2", "0001-01-01T00:00:00+14:00"])
def test_a_moment_that_could_mean_several_is_refused(text: str) -> None:
    """A time without an offset could be anybody's."""
    with pytest.raises(ValueError, match=r"offset|valid time|valid duration|calendar"):
        parse_period(text, NOW)[0]


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2999, 1, 1), timezones=st.just(UTC)))
def test_a_printed_time_is_read_back_as_itself(moment: datetime) -> None:
    """What one command prints, another takes."""
    printed = rfc3339(moment)

    assert printed is not None
    assert parse_period(printed, NOW)[0] == moment


def test_a_span_has_two_units_at_most_and_an_age_looks_both_ways() -> None:
    """Long enough to tell runs apart, short enough for a column."""
    for seconds, text in ((0, "0s"), (37, "37s"), (252, "4m12s"), (7500, "2h05m"), (273_600, "3d4h"), (-5, "0s")):
        assert span(seconds, pads_hours=False) == text
    assert exact_ago(NOW - timedelta(seconds=12), NOW) == "12s ago"
    assert exact_ago(NOW + timedelta(days=29, hours=23), NOW) == "in 29d"
    assert exact_ago(None, NOW) == "—"
