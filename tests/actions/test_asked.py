"""A retry sends the request that began a run's last turn: from this machine's ledger, or as the service reports it."""

from pathlib import Path

import pytest

from app.actions.asked import what_began
from app.api.requests import ContinueRun, StartAgent, StartRun, WriteRequest
from storage.records import Repository
from storage.records.results import RunTurns, Turn, Unavailable
from storage.values import utc_now
from tests.lab import Lab
from tests.sync.conftest import Desk

API = Repository.parse("acme/api")
BRANCH = "main"
FIRST = Turn(1, "completed", "Fix it.", "ann")
SECOND = Turn(2, "failed", "Go on.", "bob")
START, CONTINUE = StartRun("Fix it.", API, BRANCH), ContinueRun("run_1", "Go on.", API, BRANCH)


@pytest.mark.parametrize(
    ("turns", "agent", "request_"),
    [
        ((FIRST,), None, START),
        ((FIRST, SECOND), None, CONTINUE),
        ((Turn(1, "failed", "Fix it.", "ann", inputs_json='{"depth": 2}'),), "fixer", None),
        # An event began it, perhaps with less access than a new run would have: it is continued.
        ((Turn(1, "failed", "Go on.", "webhook"),), None, CONTINUE),
    ],
)
async def test_the_services_report_becomes_the_same_request(
    tmp_path: Path, turns: tuple[Turn, ...], agent: str | None, request_: WriteRequest | None
) -> None:
    """A new run, a continuation, or the named agent with its inputs; who asked is known."""
    expected = request_ or StartAgent("fixer", "acme/api", BRANCH, {"depth": 2})

    async def tell(run_id: str) -> RunTurns | Unavailable:
        return RunTurns(run_id, turns, agent=agent)

    async with Lab(clock=utc_now) as lab:
        lab.put("run_1", "failed", created=lab.now)
        async with Desk(lab, tmp_path).engine() as engine:
            await engine.refresh()
            detail = await engine.cache.detail("run_1")
            assert detail is not None
            asked = await what_began(engine.ledger, tell, detail)

    assert not isinstance(asked, Unavailable)
    assert asked.request == expected
    assert (asked.is_reported, asked.caller) == (True, turns[-1].caller)
