"""The ops engineer's day: a run that failed is continued, and new ones leave the cursor where it is."""

from tests.console.conftest import SMALL
from tests.console.journeys.conftest import BY_MOUSE, Walked
from tests.console.journeys.steps import Hand, Service
from tests.console.scenes import MINUTES_INTO_THE_DAY


def run_under_the_cursor(hand: Hand) -> str:
    """Its id."""
    row = hand.scene.table.row
    assert row is not None
    return row.run_id


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
