"""What headers say of time and of limits."""

import pytest

from app.api.timestamps import clock_ahead_s, spent_for_s

NOON = "Wed, 21 Oct 2026 12:00:00 GMT"
NOON_S = 1_792_584_000


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "17"}, 17.0),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(NOON_S + 40), "Date": NOON}, 40.0),
        ({"X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": str(NOON_S - 40), "Date": NOON}, 0.0),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "999999"}, 86_400.0),
        ({"RateLimit-Remaining": "1", "RateLimit-Reset": "17"}, None),
        ({"RateLimit-Remaining": "0"}, None),
        ({"RateLimit-Remaining": "none", "RateLimit-Reset": "soon"}, None),
        ({}, None),
    ],
)
def test_a_limit_that_is_spent_says_for_how_long(headers: dict[str, str], wait_s: float | None) -> None:
    """In seconds or as an instant by the service's own clock; at most a day, and nothing is made up."""
    assert spent_for_s(headers) == wait_s


@pytest.mark.parametrize(
    ("date", "ahead_s"), [(NOON, -7_200.0), ("yesterday", None), ("Wed, 21 Oct 2026 25:00:00 GMT", None), ("", None)]
)
def test_the_date_tells_how_far_the_clocks_are_apart(date: str, ahead_s: float | None) -> None:
    """From the middle of the request, to half a second."""
    sent_s = NOON_S + 7_200

    assert clock_ahead_s({"Date": date}, sent_s, sent_s + 1.0) == ahead_s
