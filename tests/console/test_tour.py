"""The tour: six steps that go on by themselves, and can be left."""

from app.api.requests import StartRun
from app.console.session.tour import STEPS
from app.console.session.user_preferences import read
from storage.records import Repository
from tests.console.conftest import Scene, Staged
from tests.lab import Lab


def step(scene: Scene) -> str:
    """Its number, as it is shown; empty: there is no tour."""
    found = [line.split()[0] for line in scene.lines if f"/{len(STEPS)} " in line[:8]]
    return found[0] if found else ""


async def test_the_tour_begins_with_a_run_that_was_really_executed(staged: Staged, board: Lab) -> None:
    """f9 or a click opens the first completed run that was started here; until there is one it says so.

    Another run may have no review: opening it is no step. From there going where a step leads is the next step.
    """
    async with staged(tour=True) as scene:
        await scene.press("enter")
        assert "acme-prod" in scene.lines[0]
        assert step(scene) == "1/6"

        await scene.press("escape", "f9")
        assert (step(scene), len(scene.app.screen_stack)) == ("1/6", 1)
        assert any("a few seconds" in said for said in scene.toasts)

        first = await scene.engine.actions.submit(StartRun("Review it.", Repository.parse("acme/web"), "fix/x"))
        await scene.engine.actions.submit(StartRun("Review it.", Repository.parse("acme/web"), "fix/y"))
        assert first.result_id is not None
        for run_id in [run_id for run_id in board.runs if run_id >= first.result_id]:
            board.move(run_id, "completed")
        await scene.sync()
        await scene.pilot.click("TourStrip")
        await scene.settle()

        steps = [step(scene)]
        assert first.result_id in scene.text

        for keys in (("escape",), ("3", "1"), ("2",), ("6",), ("7",), ("f9",)):
            await scene.press(*keys)
            steps.append(step(scene))

        assert steps == ["2/6", "3/6", "3/6", "4/6", "5/6", "6/6", ""]


async def test_left_it_does_not_come_back(staged: Staged) -> None:
    """Its keys are gone with it, and it is remembered."""
    async with staged(tour=True) as scene:
        await scene.press("f10", "f9")
        assert (step(scene), read(scene.app.settings).tour) == ("", len(STEPS))
        assert "tour.next" not in {active.binding.id for active in scene.app.screen.active_bindings.values()}

    async with staged(tour=True) as scene:
        assert step(scene) == ""
