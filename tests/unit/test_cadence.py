"""How often the service is asked."""

import pytest

from app.polling import CEILING, SLOWEST_S, Cadence


def test_failures_slow_polling_down_and_success_takes_the_pace_back_in_steps() -> None:
    """The first poll is due at once; each failure doubles the wait up to a ceiling; a success takes two off."""
    cadence = Cadence(10.0, draw=lambda: 1.0)
    waits = [cadence.wait_s(0.0)]
    for happened in (*[cadence.failed] * 3, *[cadence.succeeded] * 5, *[cadence.failed] * 8):
        happened(0.0)
        waits.append(cadence.wait_s(0.0))
    cadence.hasten()

    assert waits[:9] == [0.0, 20.0, 40.0, 80.0, 60.0, 40.0, 20.0, 10.0, 10.0]
    assert (waits[-1], cadence.wait_s(0.0)) == (10.0 * CEILING, 0.0)


def test_refusals_stretch_the_interval_and_each_success_shortens_it_by_a_tenth() -> None:
    """Beyond the stated wait; up to a quarter of an hour, and back to the base in the end."""
    cadence = Cadence(10.0, draw=lambda: 0.5)
    cadence.refused(0.0, 7.0)
    assert cadence.wait_s(0.0) == 47.0
    cadence.succeeded(0.0)
    assert cadence.wait_s(0.0) == pytest.approx(36.0)
    for _ in range(20):
        cadence.refused(0.0, 0.0)
    assert cadence.wait_s(0.0) == SLOWEST_S
    for _ in range(50):
        cadence.succeeded(0.0)
    assert cadence.wait_s(0.0) == 10.0


@pytest.mark.parametrize(("draw", "wait_s"), [(0.0, 10.0), (0.5, 15.0), (1.0, 20.0)])
def test_jitter_spreads_retries_over_the_interval(draw: float, wait_s: float) -> None:
    """Many consoles that failed together do not come back together."""
    cadence = Cadence(10.0, draw=lambda: draw)
    cadence.failed(0.0)

    assert cadence.wait_s(0.0) == wait_s
