"""A service whose clock is hours away from this machine's."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from tests.console.conftest import Scene, Staged
from tests.lab import START, Lab

AHEAD = timedelta(hours=2)


async def hear(scene: Scene, ahead: timedelta) -> None:
    """Answers arrive, dated by the service's clock."""
    sent_at = datetime.now(UTC) + ahead
    for _ in range(3):
        scene.engine.client.budget.hear({"Date": format_datetime(sent_at, usegmt=True)}, time.time())
    await scene.engine.client.budget.settle()
    await scene.ring()


async def test_ages_count_by_the_service_s_clock_and_that_is_said_once(staged: Staged, board: Lab) -> None:
    """A run that the service made three minutes ago is three minutes old, and the last 24 hours are its own."""
    async with staged() as scene:
        created = (scene.clock() + AHEAD - timedelta(minutes=3) - START).total_seconds() / 60
        board.put("run_new", "working", created=created)
        await scene.sync()
        assert "in 1h" in scene.rows[0]
        # Clocks that agree to the minute are not spoken of.
        await hear(scene, timedelta(seconds=40))
        assert not [said for said in scene.toasts if "clock" in said]
        for _ in range(2):
            await hear(scene, AHEAD)
            await scene.tick(seconds=1)

        assert "3m ago" in scene.rows[0]
        assert [said.partition(".")[0] for said in scene.toasts if "clock" in said] == [
            "The service's clock is 2h00m ahead of this machine's"
        ]
