from typing import Any

import pytest

from app.api.requests import StartRun
from app.console.forms import ResolveForm
from app.engine import Engine
from storage.records import Action, Repository
from tests.console.forms.steps import CREATED, opened, press, words
from tests.fault_server import Drop, FaultServer, Received, Respond, Step


def listed(run_id: str, branch: str) -> dict[str, object]:
    """A run as the service lists it."""
    return CREATED | {"run_id": run_id, "branch_name": branch}


async def unknown_start(engine: Engine, server: FaultServer, answer: Step) -> Action:
    """A start whose answer was lost; the list then answers as told."""

    def otherwise(request: Received) -> Step:
        return Drop() if request.method == "POST" else answer

    server.otherwise = otherwise
    return await engine.actions.submit(StartRun("Fix it.", Repository.parse("acme/web"), "fix/x"))


async def test_the_run_it_made_is_found_and_offered(stage: Any, engine: Engine, server: FaultServer) -> None:
    """With a branch that was named, one match is certain; a person still says so."""
    runs = [listed("run_other", "main"), listed("run_made", "fix/x")]
    action = await unknown_start(engine, server, Respond(200, {"runs": runs}))
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        text = words(app)
        await press(pilot, "1", "tab", "down", "ctrl+s")

    assert "Exactly one run fits, on the branch that was named" in text
    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_made")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Respond(200, {"runs": [listed("run_other", "main")]}), "No run fits: most likely it did not take effect."),
        (Respond(503, {"message": "Down for repairs."}), "cannot be looked up"),
    ],
)
async def test_where_no_run_is_found_the_decision_stays_open(
    stage: Any, engine: Engine, server: FaultServer, answer: Step, said: str
) -> None:
    """Nothing is decided by itself; a person's word counts all the same."""
    action = await unknown_start(engine, server, answer)
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        assert said in words(app)
        assert not app.ended
        await press(pilot, "2", "ctrl+s")

    assert app.outcome.state == "not_created"
