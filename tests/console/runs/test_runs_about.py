"""The list shows each run's instructions and its result."""

from typing import Any

import pytest

from app.api.requests import StartRun
from storage.records import Repository
from tests.console.conftest import SMALL, Staged
from tests.console.runs.test_one_run import confirmed
from tests.console.scenes import TOKEN_VARIABLE
from tests.lab import Lab

NEWEST = "run_01JX00007F3KQ9ZT2M0000"


def turn(instructions: str, **more: Any) -> dict[str, Any]:
    return {"number": 1, "instructions": instructions, "state": "completed", "outcome": "completed", **more}


def tell(board: Lab) -> None:
    """Give each run a conversation."""
    for number, run_id in enumerate(board.runs):
        said = turn(f"Task {number:02}\nin detail", additions=number, summary=f"Done {number:02}")
        board.turns[run_id] = {
            "turns": [said, turn("And the tests?") | {"number": 2} | {"summary": f"Sum {number:02}"}]
        }


def asked(board: Lab) -> list[str]:
    """The runs whose details were requested, without log requests for active ones."""
    paths = (request.path for request in board.requests if request.method == "GET" and request.path.count("/") > 3)
    return [path.rpartition("/")[2] for path in paths if "/runs/" in path and not path.endswith("/log")]


async def test_rows_show_instructions_and_results(staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """An active run has no result yet.

    Only visible runs are requested, once for each status. Known details survive a restart without a new request.
    """
    tell(board)
    del board.turns[list(board.turns)[4]]
    async with staged(SMALL) as scene:
        await scene.press("j", "j")
        await scene.tick(seconds=1)
        shown, first = [row.run_id for row in scene.table.rows_on_show], asked(board)
        assert (first[0], sorted(first)) == (shown[2], sorted(shown))

        assert "Task 00" in scene.rows[0]
        assert "Sum" not in scene.rows[0]
        assert "Task 03" in scene.rows[3]
        assert "Sum 03" in scene.rows[3]

        await scene.sync()
        await scene.tick(seconds=1)
        assert asked(board) == first
        board.move(NEWEST, "completed")
        board.turns[NEWEST]["turns"][-1]["summary"] = "Now it is done"
        await scene.sync()
        await scene.tick(seconds=1)
        assert set(asked(board)[len(first) :]) == {NEWEST}
        assert "Now it is" in scene.rows[0]

        before = asked(board)

    monkeypatch.setenv(TOKEN_VARIABLE, "token-of-the-scene")  # The engine that was opened first took the lease.
    async with staged((200, 60), synced=False) as scene:
        assert "Task 03" in scene.rows[3]
        assert "Sum 03" in scene.rows[3]
        await scene.press("g", "j", "j", "j", "j")
        assert "No message was sent from this machine." in scene.text
    assert asked(board)[: len(before)] == before


async def test_without_the_extension_sent_instructions_are_shown(
    staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns without values are hidden, and the service is asked once, not for each run."""
    async with staged() as scene:
        await scene.tick(seconds=1)
        assert not {"asked", "result"} & set(scene.lines[4].split())
        await confirmed(scene, StartRun("\n\n  Make it \x1b[2J dark.\nReally.", Repository.parse("acme/api")), NEWEST)
        await scene.sync()

    monkeypatch.setenv(TOKEN_VARIABLE, "token-of-the-scene")  # The engine that was opened first took the lease.
    async with staged() as scene:
        await scene.tick(seconds=1)
        assert "Make it ␛[2J dark." in scene.rows[0]
        assert {"asked"} == {"asked", "result"} & set(" ".join(scene.lines[3:7]).split())
        assert len(asked(board)) == 1


async def test_findings_and_agents_are_columns_and_unknown_is_not_none(staged: Staged, board: Lab) -> None:
    """Rows are sorted by severity, filtered and searched; a run without reported findings counts as unknown."""
    tell(board)
    (first, second, third, *_), told = board.runs, board.turns
    severe = [{"path": "a.py", "title": "Leak", "severity": "blocker"}, {"path": "b.py", "title": "Odd"}]
    for run_id, findings in ((first, []), (second, severe), (third, None)):
        board.move(run_id, "completed")
        told[run_id] = {"agent": "claude", "turns": [turn("Review it.", findings=findings)]}
    async with staged((200, 50)) as scene:
        await scene.tick(seconds=1)
        await scene.press("runs.columns", *"jjjjjjjjj", "space", "enter")
        assert "findings" in scene.text

        for line, number, cell in (
            ("finding:blocker", 1, "1 blocker,"),
            ("finding:none agent:cl*", 1, "no findings"),
            ("finding:unknown agent:claude", 1, "?"),
            ("claude", 3, "no findings"),
        ):
            await scene.press("slash", "ctrl+u", *line, "enter")
            await scene.settle()
            assert scene.table.window.runs == number
            assert any(cell in row for row in scene.rows), scene.rows[:3]
            assert ("58 unknown" in scene.text) == (line == "finding:blocker")
