"""The Runs room, over the real engine and a service on a real socket."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from app.engine.events import LinkChanged
from storage.records import LinkState, PollOutcome
from tests.console.conftest import WIDE, Scene, Staged
from tests.console.quiet import strips
from tests.lab import START, Lab
from tests.waiting import until
from widgets.kit.cursor_view import HEADER


async def test_rows_are_dimmed_while_the_service_gives_no_answer(staged: Staged) -> None:
    """The first answer brightens them again.

    If only this console's token is refused, that is reported, and the rows stay live.
    """
    async with staged() as scene:
        y = scene.table.region.y + HEADER + 3

        def brightness() -> int:
            (shown,) = [each.style for each in strips(scene.app)[y] if each.style and "acme/" in each.text][:1]
            assert shown.color is not None
            return sum(shown.color.get_truecolor())

        live = brightness()
        await scene.ended(PollOutcome("runs", scene.clock(), "unreachable", "No connection."))
        await scene.tick(seconds=1)
        assert brightness() < live

        await scene.ended(PollOutcome("runs", scene.clock(), None, None))
        await scene.tick(seconds=1)
        assert brightness() == live

        failure = PollOutcome("runs", scene.clock(), "not_authorized", "The token has expired.", 401)
        await scene.ring(LinkChanged(LinkState("runs", scene.clock()), own_failure=failure))
        assert [said for said in scene.toasts if "Another console keeps the rows current." in said]
        assert "live" in scene.lines[0]


async def test_a_completed_history_is_shown_as_complete(staged: Staged, board: Lab) -> None:
    """Runs are announced as they are stored, before the history is known to be complete."""
    async with staged(WIDE, synced=False) as scene:
        engine = scene.engine
        page = await engine.client.list_runs(page_size=100)
        await engine.runs.reader.store(page.runs, is_of_write=True)
        await scene.shows("history not complete yet")

        await engine.cache.extend_coverage(None, scene.clock(), scene.clock())
        await engine.runs.record(None)
        await until(lambda: "complete" not in scene.lines[3])
        assert "[All 60]" in scene.lines[3]


AHEAD = timedelta(hours=2)


async def hear(scene: Scene, ahead: timedelta) -> None:
    """Handles answers that carry the service's clock."""
    sent_at = datetime.now(UTC) + ahead
    for _ in range(3):
        scene.engine.client.budget.read_headers({"Date": format_datetime(sent_at, usegmt=True)}, time.time())
    await scene.engine.client.budget.settle()
    await scene.ring()


async def test_ages_use_the_services_clock(staged: Staged, board: Lab) -> None:
    """A run that the service created three minutes ago shows three minutes, and the last 24 hours use its clock too."""
    async with staged() as scene:
        created = (scene.clock() + AHEAD - timedelta(minutes=3) - START).total_seconds() / 60
        board.put("run_new", "working", created=created)
        await scene.sync()
        assert "in 1h" in scene.rows[0]
        # Clocks that differ by less than a minute are not mentioned.
        await hear(scene, timedelta(seconds=40))
        assert not [said for said in scene.toasts if "clock" in said]
        for _ in range(2):
            await hear(scene, AHEAD)
            await scene.tick(seconds=1)

        assert "3m ago" in scene.rows[0]
        assert [said.partition(".")[0] for said in scene.toasts if "clock" in said] == [
            "The service's clock is 2h00m ahead of this machine's"
        ]
