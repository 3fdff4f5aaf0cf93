"""What the service told of runs' turns is kept for each state of a run."""

from datetime import timedelta
from typing import cast

import pytest
from msgspec.structs import replace

from app.api.errors import UnreachableError
from app.results.service import NOT_OFFERED, ServiceExtension, ServiceTurns
from storage.records.results import RunTurns, Turn, Unavailable
from tests.results.repository import run_detail

TURNS = RunTurns(
    "run_1",
    (Turn(1, "completed", additions=3, deletions=1), Turn(3, "failed", additions=4, reason="No compiler.")),
)


class Extension:
    """The service's extension, which counts what it is asked."""

    asked = 0
    answer: RunTurns | Unavailable | Exception = TURNS

    async def turns(self, run_id: str) -> RunTurns | Unavailable:
        assert run_id == "run_1"
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        pytest.param(TURNS, 1, id="told"),
        pytest.param(Unavailable("The service says: no such run"), 1, id="none of this run"),
        pytest.param(NOT_OFFERED, 2, id="none at all: the service is asked again tomorrow"),
        pytest.param(UnreachableError("down"), 2, id="a failure"),
    ],
)
async def test_a_run_is_asked_for_once_until_it_changes(answer: RunTurns | Unavailable | Exception, times: int) -> None:
    """What is not known of a run is not asked for again either, unless the service failed."""
    service, service_turns, run = Extension(), ServiceTurns(), run_detail().run
    service.answer = answer
    extension = cast("ServiceExtension", service)
    for _ in range(2):
        if isinstance(answer, Exception):
            with pytest.raises(UnreachableError):
                await service_turns.ask(extension, run)
        else:
            assert await service_turns.ask(extension, run) == (answer if answer is TURNS else None)

    assert service.asked == times
    told = answer is TURNS
    assert (service_turns.reason(run), service_turns.count(run)) == (("No compiler.", 3) if told else ("", None))
    service.answer = TURNS
    assert run.updated_at is not None
    changed = replace(run, updated_at=run.updated_at + timedelta(seconds=1))
    assert not service_turns.holds(changed)
    assert await service_turns.ask(extension, changed) == TURNS
