"""The list says what each run is about: what was asked, and what came of it."""

from typing import Any

import pytest

from app.api.requests import StartRun
from storage.records import Repository
from tests.console.conftest import SMALL, Staged
from tests.console.runs.test_one_run import confirmed
from tests.console.scenes import TOKEN_VARIABLE
from tests.lab import Lab, Respond

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
    """The runs that the service was asked about, but for the logs of those that work."""
    paths = (request.path for request in board.requests if request.method == "GET" and request.path.count("/") > 3)
    return [path.rpartition("/")[2] for path in paths if "/runs/" in path and not path.endswith("/log")]


async def test_rows_say_what_was_asked_and_what_came_of_it(
    staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that goes on has no result yet; the id is not in the list, and is found, shown and copied as ever.

    A run is asked about once for each of its states: only those on show, the one under the cursor first. What is known
    is there with the next start, and the service is not asked again.
    """
    tell(board)
    del board.turns[list(board.turns)[4]]
    async with staged(SMALL) as scene:
        assert "asked" not in scene.text
        await scene.press("j", "j")
        await scene.tick(seconds=1)
        shown, first = [row.run_id for row in scene.table.rows_on_show], asked(board)
        assert (first[0], sorted(first)) == (shown[2], sorted(shown))

        assert "Task 00" in scene.rows[0]
        assert "Sum" not in scene.rows[0]
        assert "Task 03" in scene.rows[3]
        assert "Sum 03" in scene.rows[3]
        assert "m ago" in scene.rows[3]
        assert not any("run_01JX" in line for line in scene.rows)

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
        await scene.press("slash", *NEWEST, "enter")
        assert [row.run_id for row in scene.table.rows_on_show] == [NEWEST]
        assert NEWEST in scene.lines[-3]

    monkeypatch.setenv(TOKEN_VARIABLE, "token-of-the-scene")  # The engine before it took it.
    async with staged((200, 60), synced=False) as scene:
        await scene.press("escape")
        assert "Task 03" in scene.rows[3]
        assert "Sum 03" in scene.rows[3]
        await scene.press("g", "j", "j")
        assert "asked        Task 02" in scene.text
        assert "Conversation" not in scene.text
        await scene.press("j", "j")
        assert "No message was sent from this machine." in scene.text
    assert asked(board)[: len(before)] == before


async def test_without_the_extension_what_was_sent_is_known(
    staged: Staged, board: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns take no room while no row has a value; the service is asked once, and not for each run."""
    async with staged() as scene:
        await scene.tick(seconds=1)
        assert not {"asked", "result"} & set(scene.lines[4].split())
        await confirmed(scene, StartRun("\n\n  Make it \x1b[2J dark.\nReally.", Repository.parse("acme/api")), NEWEST)
        await scene.sync()

    monkeypatch.setenv(TOKEN_VARIABLE, "token-of-the-scene")  # The engine before it took it.
    async with staged() as scene:
        await scene.tick(seconds=1)
        assert "Make it ␛[2J dark." in scene.rows[0]
        assert {"asked"} == {"asked", "result"} & set(" ".join(scene.lines[3:7]).split())
        assert len(asked(board)) == 1


async def test_a_service_that_fails_is_asked_again_after_the_next_poll(staged: Staged, board: Lab) -> None:
    """And not with every second. What was asked is in view from 60 columns on."""
    tell(board)
    async with staged((200, 50)) as scene:
        board.script(Respond(503, {}))
        for _ in range(5):
            await scene.tick(seconds=1)
        assert len(asked(board)) == 1
        assert "Task" not in scene.text

        await scene.sync()
        await scene.tick(seconds=1)
        for size in ((60, 20), (200, 50)):
            await scene.pilot.resize_terminal(*size)
            await scene.settle()
            assert "Task 03" in scene.rows[3]
            assert len({line[28:] for line in scene.rows}) == len(scene.rows)


async def test_a_working_run_says_what_its_agent_does_now(staged: Staged, board: Lab) -> None:
    """One request for each working run on show and period of polls; what is not known stays as it was."""
    tell(board)
    for turns in board.turns.values():
        turns["turns"] = [{"number": 1, "instructions": "Make it dark.", "state": "working"}]
    working = [run_id for run_id, run in board.runs.items() if run["status"] == "working"]
    for run_id in working[:-1]:
        board.logs[run_id, 1] = b"log"
        board.steps[run_id, 1] = [
            {"kind": "said", "text": "Reading all\x1b[2J tests."},
            {"kind": "ran", "text": "pytest -q"},
        ]

    def read() -> list[str]:
        paths = [request.path for request in board.requests if request.path.endswith("/turns/1/log")]
        return [path.split("/")[-4] for path in paths]

    async with staged((200, 60)) as scene:
        shown = [row.run_id for row in scene.table.rows_on_show if row.run_id in working]
        for _ in range(5):
            await scene.tick(seconds=1)
        assert "runs pytest -q" in scene.rows[0]
        assert "now          runs pytest -q" in scene.text
        assert sorted(read()) == sorted(shown)

        board.steps[working[0], 1].append({"kind": "edited", "text": "app/dark.py\n+x"})
        await scene.tick(seconds=60)
        assert "edits app/dark.py" in scene.text
        assert len(read()) == 2 * len(shown)

        board.move(working[0], "completed")
        await scene.sync()
        assert "edits app/dark.py" not in scene.text


async def test_findings_and_agents_are_columns_and_unknown_is_not_none(staged: Staged, board: Lab) -> None:
    """Sorted by severity, filtered and searched; a run whose findings nobody told is counted as unknown."""
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
            assert scene.table.count == number
            assert any(cell in row for row in scene.rows), scene.rows[:3]
            assert ("58 unknown" in scene.text) == (line == "finding:blocker")
