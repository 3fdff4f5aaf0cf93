"""Outages of a provider, as one turn sees them."""

import time

from service.agents.outcome import TurnFailure
from service.egress.outages import Outages, Pause
from service.egress.refusals import Refusal

AWAY = TurnFailure("model_unreachable", "it is away")


def test_a_turn_waits_for_what_is_away_for_all_or_at_a_long_limit() -> None:
    """Not for what this turn alone does not get, nor for what was answered since."""
    alone, together = Outages(10, lambda: False), Outages(10, lambda: True)
    for one in (alone, together):
        one.refused(time.monotonic(), Refusal(AWAY, "ask_again", 5))
    assert (alone.pause, together.pause) == (None, Pause(AWAY, None))

    alone.refused(time.monotonic(), Refusal(AWAY, "ask_again", 60))
    together.answered()

    assert (alone.pause, together.pause) == (Pause(AWAY, 60), None)


def test_requests_are_held_for_the_patience_of_the_whole_outage() -> None:
    """Counted from the first request without an answer."""
    outages = Outages(10, lambda: False)
    outages.refused(100, Refusal(AWAY, "ask_again"))

    assert [outages.allows(105, until) for until in (110, 110.1)] == [True, False]
    outages.answered()
    assert outages.allows(105, 115)
