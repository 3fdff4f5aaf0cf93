"""Why a run failed is next to the list: the end of its log, requested only for a failed run that the cursor is on."""

import pytest

from tests.console.conftest import SMALL, Scene, Staged
from tests.console.runs.test_runs_about import turn
from tests.lab import Lab, Respond

STEPS = [
    {"kind": "said", "text": "I run the tests."},
    {"kind": "ran", "text": "make test", "call": "c1"},
    {"kind": "result", "text": "collected 12 items\nError: no space left on device", "call": "c1", "failed": True},
    {"kind": "said", "text": "I stop \x1b[31mhere."},
]


@pytest.fixture
def failing(board: Lab) -> Lab:
    """Every run has a failed second turn, and its log."""
    for run_id in board.runs:
        ended = turn("Fix it.", reason="exit code 1") | {"number": 2, "state": "failed", "outcome": "failed"}
        board.turns[run_id] = {"turns": [turn("Begin."), ended]}
        board.logs[run_id, 2] = b"a log"
        board.steps[run_id, 2] = STEPS
    return board


def logs_asked(board: Lab) -> list[str]:
    """The failed runs whose log the service was asked for; a working run's log has its last step."""
    asked = [each.path.split("/")[-4] for each in board.requests if each.path.endswith("/log")]
    return [run_id for run_id in asked if board.runs[run_id]["status"] == "failed"]


async def to_the_failure(scene: Scene) -> None:
    """Put the cursor on the first failed run."""
    await scene.press("home", "j", "j", "j")
    assert scene.table.row is not None
    assert scene.table.row.status == "failed"


async def test_the_end_of_a_failed_runs_log_is_beside_the_list(staged: Staged, failing: Lab) -> None:
    """Of its last turn, requested once however often the cursor comes back; in two lines, the line that explains."""
    async with staged(SMALL) as scene:
        await scene.tick(seconds=1)
        await to_the_failure(scene)
        await scene.shows("exit code 1", "Error: no space left on device")
        await scene.press("k", "j")
        await scene.ring()
        await scene.shows("no space left on device")
        assert len(logs_asked(failing)) == 1

        await scene.press("l")
        await scene.shows("turn 2 · ", "Error: no space left on device")


async def test_a_log_without_steps_is_shown_without_its_times(staged: Staged, failing: Lab) -> None:
    """Each line in its last state, with nothing that acts on the terminal. A failed request is repeated later."""
    failing.steps.clear()
    for run_id in failing.runs:
        failing.logs[run_id, 2] = b"2026-05-01T21:40:00.5Z one\n[2026-05-01 21:40:01] 10%\r99%\x1b[2J\n"
    async with staged() as scene:
        await scene.tick(seconds=1)
        failing.script(Respond(503, {"message": "Down for repairs."}))
        await to_the_failure(scene)
        await scene.shows("The log cannot be read now.", "Down for repairs.")
        await scene.tick(seconds=60)
        await scene.ring()
        await scene.shows("its end; l opens it", " one ", " 99%␛[2J ")
        assert "21:40:00" not in scene.text
