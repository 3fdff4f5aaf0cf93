"""The tour: six steps that go on by themselves, and can be left."""

from app.console.session.tour import STEPS
from app.console.session.user_preferences import read
from tests.console.conftest import Scene, Staged


def step(scene: Scene) -> str:
    """Its number, as it is shown; empty: there is no tour."""
    found = [line.split()[0] for line in scene.lines if f"/{len(STEPS)} " in line[:8]]
    return found[0] if found else ""


async def test_going_where_a_step_leads_is_the_next_step(staged: Staged) -> None:
    """Into a run, back, to the code hosts, to what is unknown, to the inbox; other places change nothing."""
    async with staged(tour=True) as scene:
        steps = [step(scene)]
        for keys in (("3", "1"), ("enter",), ("escape",), ("2",), ("6",), ("7",), ("f9",)):
            await scene.press(*keys)
            steps.append(step(scene))

        assert steps == ["1/6", "1/6", "2/6", "3/6", "4/6", "5/6", "6/6", ""]


async def test_left_it_does_not_come_back(staged: Staged) -> None:
    """Its keys are gone with it, and it is remembered; begun in the middle, it goes on there."""
    async with staged(tour=True) as scene:
        await scene.press("f9")
        settings = scene.app.settings
        taken = read(settings).tour
        await scene.press("f10", "f9")
        assert (taken, step(scene), read(settings).tour) == (1, "", len(STEPS))
        assert "tour.next" not in {active.binding.id for active in scene.app.screen.active_bindings.values()}

    async with staged(tour=True) as scene:
        assert step(scene) == ""
