"""What the forms do for the hand: completion, templates, copies, and the way on from what was sent."""

from typing import Any

import pytest

from app.api.requests import StartRun
from app.profiles import Template
from app.runs.screen_run import RunScreen
from storage.records import Repository
from tests.console.conftest import SMALL
from tests.console.journeys.conftest import BY_MOUSE, Walked
from tests.console.journeys.steps import NEW_RUN, PATIENCE, Hand, Mouse, Service

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


async def started(hand: Hand, service: Service, count: int) -> None:
    """Runs that were started from here, and failed."""
    for number in range(count):
        request = StartRun(f"Fix {number}.", Repository.parse("acme/web"), f"branch-{number}")
        made: Any = await hand.scene.engine.actions.submit(request)
        service.runs[made.result_id] |= {"status": "failed", "branch_name": f"branch-{number}"}
    hand.scene.clock.move(minutes=1)
    await hand.scene.sync()
