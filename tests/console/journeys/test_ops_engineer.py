"""The ops engineer's day: a run that failed is continued, and new ones leave the cursor where it is."""

from tests.console.conftest import SMALL
from tests.console.journeys.conftest import BY_KEYS, BY_MOUSE, Walked
from tests.console.journeys.steps import Hand, Service
from tests.console.scenes import MINUTES_INTO_THE_DAY


def run_under_the_cursor(hand: Hand) -> str:
    """Its id."""
    row = hand.scene.table.row
    assert row is not None
    return row.run_id


@BY_KEYS
async def test_a_run_is_continued(walked: Walked, service: Service) -> None:
    """The failed one under the cursor goes on, with what was said to it beside it."""
    async with walked() as hand:
        await hand.point("✗ failed")
        run_id = run_under_the_cursor(hand)
        await hand.do("c", "c continue")
        await hand.fill("instructions", "Find out why.")
        await hand.do("ctrl+s", "Preview ^s")
        await hand.see(f"Continues {run_id}")
        await hand.do("ctrl+s", "Send ^s")
        await hand.see("The run goes on")
        await hand.do("escape", "Close esc")
        await hand.scene.sync()
        await hand.see("○ 2 queued", "Find out why.")

        (request,) = service.written
        assert request.json()["run_id"] == run_id  # type: ignore[index]
        assert run_under_the_cursor(hand) == run_id
        assert service.board.runs[run_id]["status"] == "queued"


@BY_MOUSE
async def test_new_runs_never_move_the_cursor_off_its_run(walked: Walked, service: Service) -> None:
    """At the bottom of a small terminal, which they would leave; their number is told, and one deed shows them."""
    async with walked(SMALL) as hand:
        await hand.point(hand.scene.rows[-1][2:40])
        for number in range(3):
            service.board.put(f"run_new{number}", "queued", created=MINUTES_INTO_THE_DAY)
        before = run_under_the_cursor(hand)
        await hand.scene.sync()
        assert run_under_the_cursor(hand) == before

        await hand.see("3 new ↑")
        await hand.do("g", "3 new ↑")
        await hand.see("All 63")
        assert "new ↑" not in hand.scene.text
        assert run_under_the_cursor(hand) == "run_new2"
