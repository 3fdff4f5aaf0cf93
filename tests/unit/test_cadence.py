"""How often the service is asked."""

import pytest

from app.sync.polls import CEILING, Cadence


def steady() -> Cadence:
    return Cadence(10.0, jitter=lambda: 1.0)


def test_first_poll_is_due_at_once() -> None:
    """A console that has just started asks without waiting."""
    assert steady().wait_s(0.0) == 0.0


def test_failures_slow_polling_down_up_to_a_ceiling() -> None:
    """Each failure doubles the wait; it never grows beyond the ceiling."""
    cadence = steady()
    waits = []
    for _ in range(8):
        cadence.failed(100.0)
        waits.append(cadence.wait_s(100.0))

    assert waits[:4] == [20.0, 40.0, 80.0, 160.0]
    assert waits[-1] == 10.0 * CEILING


def test_success_takes_the_pace_back_in_steps() -> None:
    """One success after many failures does not bring the full pace back at once."""
    cadence = steady()
    for _ in range(3):
        cadence.failed(0.0)
    cadence.succeeded(0.0)

    assert cadence.wait_s(0.0) == 60.0
    for _ in range(5):
        cadence.succeeded(0.0)
    assert cadence.wait_s(0.0) == 10.0


def test_a_stated_wait_holds_even_when_a_person_asks() -> None:
    """Retry-After is a promise to the service: hastening a poll does not break it."""
    cadence = steady()
    cadence.failed(0.0, retry_after_s=90.0)
    cadence.hasten()

    assert cadence.wait_s(0.0) == 90.0


def test_a_person_can_skip_a_wait_of_our_own() -> None:
    """A back-off that the service did not ask for gives way to a person."""
    cadence = steady()
    cadence.failed(50.0)
    cadence.hasten()

    assert cadence.wait_s(50.0) == 0.0


@pytest.mark.parametrize(("draw", "wait_s"), [(0.0, 10.0), (0.5, 15.0), (1.0, 20.0)])
def test_jitter_spreads_retries_over_half_the_interval(draw: float, wait_s: float) -> None:
    """Many consoles that failed together do not come back together."""
    cadence = Cadence(10.0, jitter=lambda: draw)
    cadence.failed(0.0)

    assert cadence.wait_s(0.0) == wait_s
