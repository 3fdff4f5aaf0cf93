"""Runs that are under way, on a repository with a past."""

from collections.abc import Awaitable, Callable

import pytest

from tests.console.conftest import Scene
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import START, Lab, stamp

SOLO = {"platform": "github", "data": {"owner": "acme", "repo": "solo"}}
Mover = Callable[..., Awaitable[None]]


@pytest.fixture
def move(board: Lab) -> Mover:
    """Has a run change its status now, and the console poll."""

    async def change(scene: Scene, run_id: str, status: str) -> None:
        minute = (scene.clock() - START).total_seconds() / 60
        board.runs[run_id] |= {"status": status, "updated_at": stamp(minute)}
        await scene.sync()

    return change


@pytest.fixture(autouse=True)
def busy(board: Lab) -> None:
    """Six runs that go on, on `acme/solo`, whose runs took 2 to 12 minutes."""
    for number in range(20):
        end = MINUTES_INTO_THE_DAY - 100 - number
        took = 2.0 + number / 2
        board.put(f"run_old{number:02}", "completed", created=end - took, updated=end, repository=SOLO)
    for number in range(6):
        created = MINUTES_INTO_THE_DAY - 0.5 - number * 3
        branch = f"agent/topic-{number}"
        board.put(
            f"run_go{number}", "working", created=created, updated=created + 0.2, branch_name=branch, repository=SOLO
        )
