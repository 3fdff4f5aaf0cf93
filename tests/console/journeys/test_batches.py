"""A batch goes on after its form has closed: its line on every screen, its live list, and its outcome in Activity."""

from app.console.sheets import BatchScreen
from app.runs.screen_run import RunScreen
from tests.console.journeys.conftest import BY_KEYS, BY_MOUSE, Walked
from tests.console.journeys.steps import NEW_RUN, Hand, Mouse, Service
from tests.console.journeys.test_act_once import named
from tests.console.journeys.test_forms import started
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import stamp
from widgets.runs.follow import FollowStrip

FIRST, SECOND = f"{NEW_RUN}4", f"{NEW_RUN}5"


async def send_three(hand: Hand, service: Service) -> None:
    """Retries three runs; one retry is rejected."""
    await started(hand, service, 3)
    service.rejects_at = "branch-2"
    for number in range(3):
        await hand.mark(f"branch-{number}")
    await named(hand, "T", "Retry failed")
    await hand.do("ctrl+s", "Send ^s")
    await hand.see("2 of 3 runs started again", "Not on that branch.")
    await hand.do("escape", "Close esc")


async def ended(hand: Hand, service: Service, **statuses: str) -> None:
    """The runs end, and the console polls."""
    for run_id, status in statuses.items():
        service.runs[run_id] |= {"status": status, "updated_at": stamp(MINUTES_INTO_THE_DAY + 1)}
    hand.scene.clock.move(minutes=2)
    await hand.scene.sync()


async def to_the_list(hand: Hand) -> None:
    """From its line to its live list."""
    if not isinstance(hand, Mouse):
        await hand.do("F", "")
    else:
        await hand.scene.pilot.click(FollowStrip, offset=(8, 0))
        await hand.scene.settle()
    assert isinstance(hand.scene.app.screen, BatchScreen)


@BY_KEYS
async def test_a_batch_is_followed_to_its_end_after_its_form_has_closed(walked: Walked, service: Service) -> None:
    """Its line moves in every tab, and its list names each run."""
    async with walked() as hand:
        await send_three(hand, service)
        await hand.see("⊘ 2 of 3 sent 0 of 2 done")
        await ended(hand, service, **{FIRST: "completed", SECOND: "failed"})
        await hand.do("2", "2 Health")
        await hand.see("⊘ 2 of 3 sent 2 of 2 done, 1 failed")

        await to_the_list(hand)
        await hand.see("✗ rejected", "Not on that branch.", "✗ failed", "✓ completed")
        service.runs[SECOND] |= {"status": "working", "updated_at": stamp(MINUTES_INTO_THE_DAY + 3)}
        await hand.scene.sync()
        await hand.see("● working")
        await ended(hand, service, **{SECOND: "completed"})
        await hand.see("2 of 2 done")
        assert "done, 1 failed" not in hand.scene.text
        await (hand.do("enter", "") if not isinstance(hand, Mouse) else hand.do("", FIRST))
        assert isinstance(hand.scene.app.screen, RunScreen)


@BY_MOUSE
async def test_what_a_batch_left_unknown_moves_its_line_when_it_is_resolved(walked: Walked, service: Service) -> None:
    """Resolved in Activity, long after its form has closed; let go, the line is gone."""
    async with walked() as hand:
        await started(hand, service, 1)
        await hand.mark("branch-0")
        await named(hand, "T", "Retry failed")
        service.loses_runs = True
        await hand.do("ctrl+s", "Send ^s")
        await hand.see("press v to resolve it")
        await hand.do("escape", "Close esc")
        await hand.see("? 0 of 1 sent, 1 unknown")
        await hand.do("U", "U unknown outcome")
        await hand.do("v", "v resolve")
        await hand.do("2", "It did not take effect")
        await hand.do("ctrl+s", "Resolve it ^s")
        await hand.see("✗ 0 of 1 sent")
        await hand.scene.press("F", "delete")
        assert "of 1 sent" not in hand.scene.text
