"""The ops engineer's day: finds a run, looks at it, starts one, continues one; nothing shown is more than true."""

from tests.console.conftest import SMALL
from tests.console.journeys.conftest import BY_KEYS, BY_MOUSE, Walked
from tests.console.journeys.steps import NEW_RUN, Hand, Service
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.fault_server import Drop

FAILED_RUN = "run_01JX00097F3KQ9ZT2M1271"


def run_under_the_cursor(hand: Hand) -> str:
    """Its id."""
    row = hand.scene.table.row
    assert row is not None
    return row.run_id


@BY_MOUSE
async def test_a_run_is_found_and_looked_at(walked: Walked, service: Service) -> None:
    """By a search, by a view, by a filter; opened, read as JSON, and left for the place it was opened from."""
    async with walked() as hand:
        await hand.do("slash", "/ search")
        await hand.type("payment")
        await hand.see("12 of 60")
        await hand.do("escape", "esc clear")
        await hand.see("[All 60]")

        await hand.do("] ]", "Failed 24h")
        await hand.see("[Failed 24h 4]")
        await hand.do("[ [", "All 60")
        await hand.see("[All 60]")

        await hand.do("s", "status any")
        await hand.see("Show status")
        await hand.open("✗ failed")
        await hand.see("4 of 60")
        await hand.open("tools")
        await hand.see("Timeline", "esc back", "gitlab:acme/tools")
        await hand.do("f6", "F6 Raw")
        await hand.see('"project_path": "acme/tools"')
        await hand.do("escape", "esc back")

        await hand.see("4 of 60")
        assert run_under_the_cursor(hand) == FAILED_RUN


@BY_KEYS
async def test_a_run_is_started(walked: Walked, service: Service) -> None:
    """On the cursor's repository: previewed, sent once, and the cursor is on it as soon as the service lists it."""
    async with walked() as hand:
        await hand.point("acme/web")
        await hand.do("n", "n new run")
        await hand.fill("instructions", "Fix the flaky test.")
        await hand.do("ctrl+s", "Preview ^s")
        await hand.see("Starts one run on acme/web", '"instructions": "Fix the flaky test."')
        assert service.written == []

        await hand.do("ctrl+s", "Send ^s")
        await hand.see(NEW_RUN)
        await hand.do("escape", "Close esc")
        await hand.scene.sync()
        await hand.see("[All 61]")

        (request,) = service.written
        assert request.json() == {
            "instructions": "Fix the flaky test.",
            "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        }
        assert run_under_the_cursor(hand) == NEW_RUN


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


@BY_KEYS
async def test_what_is_stale_is_never_shown_as_live(walked: Walked, service: Service) -> None:
    """In every room, with since when, and the rows still there to be looked at."""
    async with walked() as hand:
        service.refuses = Drop()
        hand.scene.clock.move(minutes=12)
        await hand.scene.sync()
        for key, room in (("2", "2 Health"), ("3", "3 Organizations"), ("1", "1 Runs")):
            await hand.do(key, room)
            await hand.scene.tick(seconds=1)
            assert "◌ stale 12m" in hand.scene.lines[0]
            assert "live" not in hand.scene.lines[0]

        await hand.point("fix/login-timeout")
        await hand.see("What you see is from 22:00:00", "≥1m00s")

        service.refuses = None
        await hand.scene.sync()
        await hand.see("● live")
        assert "What you see is from" not in hand.scene.text


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
