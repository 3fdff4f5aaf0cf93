"""Acting on runs: each form is about the run that it was opened on, and no unknown outcome goes out of sight."""

from app.actions.screen import ActivityScreen
from app.api.requests import StartRun
from storage.records import Action, Repository
from tests.console.journeys.conftest import BY_KEYS, Walked
from tests.console.journeys.steps import Hand, Mouse, Service


async def named(hand: Hand, key: str, name: str) -> None:
    """An action without a hint: by its key, or from the palette."""
    if not isinstance(hand, Mouse):
        await hand.do(key, "")
    else:
        await hand.do(":", ": palette")
        await hand.type(name)
        # Another tab's action of that name has its tab behind it.
        await hand.do("enter", f"{name}  ")


async def start_lost(hand: Hand, service: Service) -> Action:
    """Starts a run whose answer never arrives, and leaves the form; returns the action."""
    service.loses_runs = True
    await hand.do("n", "n new run")
    await hand.fill("instructions", "Fix the flaky test.")
    await hand.do("ctrl+s", "Preview ^s")
    await hand.do("ctrl+s", "Send ^s")
    await hand.see("The outcome is unknown")
    await hand.do("escape", "Close esc")
    service.loses_runs = False
    return (await hand.scene.engine.ledger.actions(limit=1))[0]


@BY_KEYS
async def test_a_draft_belongs_to_its_repository(walked: Walked, service: Service) -> None:
    """On a run of another repository the form begins empty; on one of this repository the draft is there again."""
    async with walked() as hand:
        await hand.point("acme/web")
        await hand.do("n", "n new run")
        assert hand.value("repository") == "acme/web"
        await hand.fill("instructions", "Only for web.")
        await hand.do("escape", "Close esc")

        await hand.point("t-service")
        await hand.do("n", "n new run")
        assert hand.value("repository") == "acme/payment-service"
        assert hand.value("instructions") == ""
        await hand.do("escape", "Close esc")

        await hand.point("acme/web")
        await hand.do("n", "n new run")
        await hand.see("Your draft from just now")
        assert hand.value("instructions") == "Only for web."
        assert service.written == []


@BY_KEYS
async def test_an_unknown_outcome_is_in_sight_in_every_tab_until_it_is_resolved(
    walked: Walked, service: Service
) -> None:
    """The header and the tab count it, a key and a click lead to it, and once it is resolved no form warns of it.

    A form on show hears that, by another process too: the warning goes, and it says what became of the text.
    """
    async with walked() as hand:
        await hand.point("acme/web")
        action = await start_lost(hand, service)
        for number, tab in (("2", "Health"), ("3", "Organizations"), ("4", "Insights"), ("1", "Runs")):
            await hand.do(number, f"{number} {tab}")
            await hand.see("?1", "Activity ?1")

        await hand.do("n", "n new run")
        await hand.see("the outcome is unknown: check before you send it again")
        await hand.do("escape", "Close esc")

        await hand.do("U", "U unknown outcome")
        assert isinstance(hand.scene.app.screen, ActivityScreen)
        await hand.see("Check whether it took effect", action.action_id)
        await hand.do("v", "v resolve")
        await hand.do("n", "It did not take effect")
        await hand.do("ctrl+s", "Resolve it ^s")
        await hand.see("⊘ not created")
        assert "unknown" not in hand.scene.lines[0]
        assert "?1" not in hand.scene.text

        await hand.do("1", "1 Runs")
        await hand.do("n", "n new run")
        await hand.see("Your draft from")
        assert "unknown" not in hand.scene.text
        assert hand.value("instructions") == "Fix the flaky test."
        await hand.do("escape", "Close esc")

        service.loses_runs = True
        again = await hand.scene.engine.actions.submit(StartRun("Fix the flaky test.", Repository.parse("acme/web")))
        await hand.do("n", "n new run")
        await hand.see("the outcome is unknown: check before you send it again")
        await hand.scene.engine.ledger.resolve_created(again.action_id, "run_found")
        await hand.scene.ring()
        await hand.see("took effect: run_found")
        assert "the outcome is unknown" not in hand.scene.text
        await hand.do("escape", "Close esc")
        await hand.do("n", "n new run")
        assert hand.value("instructions") == ""
