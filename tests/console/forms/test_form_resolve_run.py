from typing import Any

from app.api.requests import StartRun
from app.console.forms import ResolveForm
from app.engine import Engine
from storage.records import Action, Repository
from tests.console.forms.steps import opened, settle, words
from tests.fault_server import Drop, FaultServer, Received, Respond, Step


def listed(run_id: str, branch: str) -> dict[str, object]:
    """A run as the service lists it."""
    return {
        "run_id": run_id,
        "status": "queued",
        "branch_name": branch,
        "repository": {"platform": "github", "data": {"owner": "acme", "repo": "web"}},
        "created_at": "2026-05-04T12:00:00Z",
        "updated_at": "2026-05-04T12:00:00Z",
    }


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
        await pilot.press("1", "tab", "down", "ctrl+s")
        await settle(pilot)

    assert "Exactly one run fits, on the branch that was named" in text
    assert isinstance(app.outcome, Action)
    assert (app.outcome.state, app.outcome.result_id) == ("confirmed", "run_made")


async def test_where_no_run_fits_it_says_so(stage: Any, engine: Engine, server: FaultServer) -> None:
    """And decides nothing by itself."""
    action = await unknown_start(engine, server, Respond(200, {"runs": [listed("run_other", "main")]}))
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        text = words(app)
        await pilot.press("escape")
        await settle(pilot)

    assert "No run fits: most likely it did not take effect." in text
    assert app.outcome is None


async def test_a_service_that_cannot_be_asked_leaves_the_decision_open(
    stage: Any, engine: Engine, server: FaultServer
) -> None:
    """The three words work all the same."""
    action = await unknown_start(engine, server, Respond(503, {"message": "Down for repairs."}))
    app = stage(lambda engine: ResolveForm(engine, action))
    async with opened(app) as pilot:
        text = words(app)
        await pilot.press("2", "ctrl+s")
        await settle(pilot)

    assert "cannot be looked up" in text
    assert isinstance(app.outcome, Action)
    assert app.outcome.state == "not_created"
