"""A service that shows local times without an offset, through the change to and from summer time."""

from datetime import timedelta

import pytest

from app.engine import Engine
from tests.sync.conftest import Desk, ended
from tests.sync.peer import MINUTE, SECOND

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("change", [HOUR, -HOUR])
def test_the_change_of_summer_time(desk: Desk, change: timedelta) -> None:
    """What changed since the last poll says how late it is there: ages are right again soon, and nothing is missed."""
    desk.peer.local_offset = 2 * HOUR
    ended(desk.peer, 300)

    async def through(engine: Engine) -> list[timedelta]:
        await engine.runs.refresh()
        await engine.runs.service_traits()
        found = [await engine.cache.run_clock_ahead()]
        desk.peer.local_offset = 2 * HOUR + change
        for n in range(4):
            created = desk.peer.now - MINUTE
            desk.peer.put(f"new_{n}", created=created, updated=created + 20 * SECOND)
            await engine.runs.refresh()
        return [*found, await engine.cache.run_clock_ahead()]

    assert desk.within(through) == [2 * HOUR, 2 * HOUR + change]
    desk.fill()
    assert not desk.missing()
