"""What the forms do for the hand: completion, templates, copies, and the way on from what was sent."""

from typing import Any

import pytest

from app.api.requests import StartRun
from app.profiles import Template
from app.runs.screen_run import RunScreen
from storage.records import Repository
from tests.console.conftest import SMALL
from tests.console.journeys.conftest import BY_KEYS, BY_MOUSE, Walked
from tests.console.journeys.steps import NEW_RUN, PATIENCE, Hand, Mouse, Service
from tests.console.journeys.test_act_once import named

TEMPLATES = (Template("once more", "Once more on {branch} of {repository}."),)


async def choose(hand: Hand, name: str, text: str, suggestion: str) -> None:
    """Begins to type, and takes the suggestion."""
    await hand.fill(name, text)
    if not isinstance(hand, Mouse):
        for _ in range(PATIENCE):
            if hand.value(name) == suggestion:
                break
            await hand.scene.press("down")
    else:
        await hand.do("", suggestion)
    assert hand.value(name) == suggestion


@BY_MOUSE
async def test_a_run_is_started_with_what_the_form_offers(
    walked: Walked, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that was seen there, a template with what is known, both copies; then followed, and opened."""
    copied: list[str] = []
    async with walked(SMALL, changed={"templates": TEMPLATES}) as hand:
        monkeypatch.setattr(hand.scene.app, "copy_to_clipboard", copied.append)
        await hand.point("acme/web")
        await hand.do("n", "n new run")
        await choose(hand, "branch_name", "dark", "agent/dark-mode")
        await hand.fill("instructions", "Please: ")
        await hand.do("ctrl+t", "Template ^t")
        await hand.do("enter", "once more")
        assert hand.value("instructions") == "Please: Once more on agent/dark-mode of acme/web."
        await hand.do("ctrl+s", "Preview ^s")
        await hand.do("y", "Copy as curl y")
        await hand.do("Y", "Copy command Y")
        await hand.do("ctrl+s", "Send ^s")
        await hand.see("The run was started")
        await hand.do("f", "Follow f")
        await hand.do("enter", "Open run enter")
        assert isinstance(hand.scene.app.screen, RunScreen)
        await hand.scene.sync()
        await hand.scene.press("escape")
        assert hand.scene.table.row is not None
        assert hand.scene.table.row.run_id == NEW_RUN, "the cursor goes to what was started"

        assert [pin.run_id for pin in hand.scene.app.session.pins] == [NEW_RUN]
        assert [body["branch_name"] for body in service.written] == ["agent/dark-mode"]
        assert [text.split()[0] for text in copied] == ["curl", "runwarden"]


@BY_KEYS
@pytest.mark.parametrize(
    ("key", "name", "count"), [("T", "Retry failed", 3), pytest.param("c", "Continue", 3, marks=pytest.mark.campaign)]
)
async def test_many_are_sent_in_batches_of_the_cap(
    walked: Walked, service: Service, key: str, name: str, count: int
) -> None:
    """One confirmation, then a key for each next batch; both go on with what was said to the runs before."""
    async with walked(send_cap=2) as hand:
        await started(hand, service, count)
        await hand.do("home", "[All")
        for number in range(count):
            await hand.mark(f"branch-{number}")
        await named(hand, key, name)
        await hand.see("first 2, then the next")
        if key == "c":
            await hand.fill("instructions", "Go on with {previous_instructions}")
            await hand.do("ctrl+s", "Preview ^s")
        await hand.do("ctrl+s", "Send ^s")
        await hand.see("2 of 3 runs", "1 is left")
        await hand.do("ctrl+s", "Send the next ^s")
        await hand.see("3 of 3 runs")
        said = [body["instructions"] for body in service.written[count:]]

        prefix = "Go on with " if key == "c" else ""
        assert said == [f"{prefix}Fix {number}." for number in range(count)]


async def started(hand: Hand, service: Service, count: int) -> None:
    """Runs that were started from here, and failed."""
    for number in range(count):
        request = StartRun(f"Fix {number}.", Repository.parse("acme/web"), f"branch-{number}")
        made: Any = await hand.scene.engine.actions.submit(request)
        service.runs[made.result_id] |= {"status": "failed", "branch_name": f"branch-{number}"}
    hand.scene.clock.move(minutes=1)
    await hand.scene.sync()
