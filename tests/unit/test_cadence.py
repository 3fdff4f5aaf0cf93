"""How often the service is asked."""

import pytest

from app.sync.polls import CEILING, Cadence


def steady() -> Cadence:
    return Cadence(10.0, jitter=lambda: 1.0)


def test_failures_slow_polling_down_and_success_takes_the_pace_back_in_steps() -> None:
    """The first poll is due at once; each failure doubles the wait, and each success takes two intervals off."""
    cadence = steady()
    waits = [cadence.wait_s(0.0)]
    for happened in (*[cadence.failed] * 3, *[cadence.succeeded] * 5):
        happened(0.0)
        waits.append(cadence.wait_s(0.0))

    assert waits == [0.0, 20.0, 40.0, 80.0, 60.0, 40.0, 20.0, 10.0, 10.0]


def test_the_wait_never_grows_beyond_the_ceiling() -> None:
    """However often it fails."""
    cadence = steady()
    for _ in range(8):
        cadence.failed(0.0)

    assert cadence.wait_s(0.0) == 10.0 * CEILING


@pytest.mark.parametrize(("retry_after_s", "wait_s"), [(90.0, 90.0), (None, 0.0)])
def test_a_person_can_skip_a_wait_of_our_own_only(retry_after_s: float | None, wait_s: float) -> None:
    """Retry-After is a promise to the service; a back-off that it did not ask for gives way."""
    cadence = steady()
    cadence.failed(0.0, retry_after_s=retry_after_s)
    cadence.hasten()

    assert cadence.wait_s(0.0) == wait_s


@pytest.mark.parametrize(("draw", "wait_s"), [(0.0, 10.0), (0.5, 15.0), (1.0, 20.0)])
def test_jitter_spreads_retries_over_half_the_interval(draw: float, wait_s: float) -> None:
    """Many consoles that failed together do not come back together."""
    cadence = Cadence(10.0, jitter=lambda: draw)
    cadence.failed(0.0)

    assert cadence.wait_s(0.0) == wait_s
