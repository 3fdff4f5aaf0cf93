"""What needs a look is what is not usual there."""

from datetime import UTC, datetime

import pytest

from storage.records.insights import Outcomes
from widgets.profiles import unusual

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("today", "usual", "said"),
    [
        ((20, 0), (700, 30), None),
        ((18, 2), (630, 70), None),
        ((70, 10), (630, 70), None),
        ((60, 20), (630, 70), "20 failed in 24h, usually 8"),
        ((18, 2), (700, 0), None),
        ((17, 3), (700, 0), "3 failed in 24h, usually 0"),
        ((6, 4), (10, 2), None),
        ((1, 4), (10, 2), "4 of 5 failed in 24h"),
        ((0, 1), (0, 0), None),
    ],
)
def test_a_profile_needs_a_look_where_more_fails_than_normally_does(
    today: tuple[int, int], usual: tuple[int, int], said: str | None
) -> None:
    """Compared with its own month; without one, where most runs fail."""
    badge = unusual(*(Outcomes(NOON, NOON, completed, failed) for completed, failed in (today, usual)))

    assert (None if badge is None else badge.word) == said
