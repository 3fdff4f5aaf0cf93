"""Next to the list is the end of a failed run's log, requested only when the cursor is on the run."""

from tests.console.conftest import SMALL, Staged
from tests.console.runs.test_runs_about import turn
from tests.lab import Lab

STEPS = [
    {"kind": "said", "text": "I run the tests."},
    {"kind": "ran", "text": "make test", "call": "c1"},
    {"kind": "result", "text": "collected 12 items\nError: no space left on device", "call": "c1", "failed": True},
    {"kind": "said", "text": "I stop \x1b[31mhere."},
]


async def test_a_failed_runs_log_end_is_shown_next_to_the_list(staged: Staged, board: Lab) -> None:
    """The last turn's log is requested once, however often the cursor returns.

    Two lines include the one that explains.
    """
    for run_id in board.runs:
        ended = turn("Fix it.", reason="exit code 1") | {"number": 2, "state": "failed", "outcome": "failed"}
        board.turns[run_id] = {"turns": [turn("Begin."), ended]}
        board.logs[run_id, 2] = b"a log"
        board.steps[run_id, 2] = STEPS
    async with staged(SMALL) as scene:
        await scene.tick(seconds=1)
        await scene.press("home", "j", "j", "j")
        assert scene.table.row is not None
        assert scene.table.row.status == "failed"
        await scene.shows("exit code 1", "Error: no space left on device")
        await scene.press("k", "j")
        await scene.ring()
        await scene.shows("no space left on device")
        log = f"{scene.table.row.run_id}/turns/2/log"
        assert sum(log in each.path for each in board.requests) == 1

        await scene.press("l")
        await scene.shows("turn 2 · ", "Error: no space left on device")
