"""A cancellation of unknown outcome is settled by what the run says, in the background as well."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.actions.cancelling import Cancellations
from app.api.requests import CancelRun
from tests.actions.conftest import Desk
from tests.lab import Drop, Respond, Step


def turn(number: int, outcome: str | None, started: timedelta) -> dict[str, Any]:
    at = (datetime.now(UTC) + started).isoformat()
    return {"number": number, "state": outcome or "working", "outcome": outcome, "started_at": at}


BEFORE, AFTER = timedelta(minutes=-5), timedelta(days=1)
"""Of when the tests were collected, which may be an hour ago."""


def told(*turns: dict[str, Any]) -> Respond:
    return Respond(200, {"run_id": "run_1", "turns": turns})


@pytest.mark.parametrize(
    ("answer", "resolution"),
    [
        (told(turn(1, "cancelled", BEFORE)), "created"),
        (told(turn(1, "completed", BEFORE)), "not_created"),
        pytest.param(told(turn(1, "cancelled", BEFORE), turn(2, "completed", AFTER)), "created", id="continued since"),
        pytest.param(told(turn(1, None, BEFORE)), None, id="it may still arrive"),
        (told(), None),
        pytest.param(Respond(404, {"message": "Not Found"}), None, id="not told"),
        (Respond(200, "<html>"), None),
        (Drop(), None),
    ],
)
async def test_an_unknown_cancellation_is_settled_by_the_turn(desk: Desk, answer: Step, resolution: str | None) -> None:
    """By the one that worked when it was sent; while that is not told, it stays unknown and is asked for ever later."""
    desk.server.script(Drop())
    sent = await desk.actions().submit(CancelRun("run_1"))
    assert sent.state == "unknown"
    desk.server.otherwise = lambda _: answer
    now = datetime.now(UTC)
    actions = replace(desk.actions(), clock=lambda: now)
    chore, asked = Cancellations(actions), len(desk.server.requests)
    for _ in range(60):
        now += timedelta(minutes=1)
        await chore.work()

    [found] = await desk.ledger.actions(limit=9)
    assert found.resolution == resolution
    assert len(desk.server.requests) - asked <= (1 if resolution else 15)
