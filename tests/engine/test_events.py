"""Events reach every listener."""

import pytest

from app.engine.events import Event, EventBus, PollDelayed


def test_a_listener_that_fails_keeps_no_event_from_the_others() -> None:
    """All have the event in the order of subscription, and the failure is raised after that."""
    bus, received = EventBus(), list[str]()

    def fail(_event: Event) -> None:
        received.append("second")
        raise OSError("disk full")

    bus.subscribe(lambda _: received.append("first"))
    bus.subscribe(fail)
    bus.subscribe(lambda _: received.append("third"))

    with pytest.raises(OSError, match="disk full"):
        bus.publish(PollDelayed())
    assert received == ["first", "second", "third"]
