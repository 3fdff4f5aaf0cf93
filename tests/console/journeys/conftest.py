"""The service behind the journeys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.console.scenes import MINUTES_INTO_THE_DAY, a_day
from tests.lab import Drop, Lab, Received, Respond, Step

NEW_RUN: Final = "run_01JYSTARTED"


@dataclass(kw_only=True, eq=False)
class Service(Lab):
    """The lab, which rejects and loses what it is told to; the first run that is started has a name of its own."""

    rejects: Step | None = None
    """What every write is answered with."""
    rejects_at: str = ""
    """The branch that no run is started on."""
    loses: bool = False
    """Writes take effect, and no answer arrives."""

    def answer(self, request: Received) -> Step:
        """As the lab, but for what is refused or lost."""
        if request.method != "POST":
            return super().answer(request)
        body = request.json()
        if self.rejects is not None:
            return self.rejects
        if self.rejects_at and body.get("branch_name") == self.rejects_at:
            return Respond(400, {"message": "Not on that branch."})
        if not request.path.endswith("/runs") or "run_id" in body:
            return Drop() if self.loses else super().answer(request)
        count = sum(run_id.startswith(NEW_RUN) for run_id in self.runs)
        run_id = f"{NEW_RUN}{count + 1}" if count else NEW_RUN
        where = {"branch_name": "agent/started", "repository": body["repository"]}
        self.put(run_id, "queued", created=MINUTES_INTO_THE_DAY, **where)
        return Drop() if self.loses else Respond(201, self.runs[run_id])


@pytest.fixture
def service() -> Iterator[Service]:
    """A day's runs."""
    with Service() as service:
        a_day(service)
        yield service


@pytest.fixture
def board(service: Service) -> Service:
    """What `staged` shows."""
    return service
