"""One run: its conversation, its neighbours, its JSON, and what can be done with it."""

import json

import pytest
from textual.widgets import Input, TextArea

from app.api.requests import ContinueRun, StartRun
from storage.records import Repository
from tests.console.conftest import Staged
from tests.run_board import Board


async def remember_start(scene: object, run_id: str, instructions: str, branch: str | None) -> None:
    """The ledger as it is after this run was started from here."""
    ledger = scene.engine.ledger  # type: ignore[attr-defined]
    request = StartRun(instructions, Repository.parse("acme/web"), branch)
    action = await ledger.prepare(
        action_id=None,
        kind="run.start",
        subject="",
        key="k",
        path=request.path,
        body_json=json.dumps(request.body()),
        actor="ada",
    )
    await ledger.sending(action.action_id)
    await ledger.confirm(action.action_id, result_id=run_id, response_json="{}")


async def test_a_run_is_shown_with_what_was_said_and_with_its_branch(staged: Staged) -> None:
    """Who said it, when, and what became of it; the other runs on the branch are one key away."""
    async with staged() as scene:
        await scene.press("j")
        run_id = scene.table.row.run_id if scene.table.row else ""
        await remember_start(scene, run_id, "Make it dark.", None)
        await scene.press("enter")

        assert "ada" in scene.text
        assert "✓ confirmed" in scene.text
        assert "Make it dark." in scene.text
        assert "On this branch  2 runs" in scene.text

        await scene.press("right_square_bracket")
        assert "completed" in scene.lines[3]
        assert "▸ ✓ completed" in scene.text

        await scene.press("right_square_bracket")
        assert "no older run" in "".join(scene.toasts)

        await scene.press("left_square_bracket")
        assert run_id in scene.lines[4]


async def test_new_like_this_begins_with_what_it_was_told(staged: Staged) -> None:
    """Repository, branch as it was asked for, and instructions."""
    async with staged() as scene:
        await scene.press("j")
        run_id = scene.table.row.run_id if scene.table.row else ""
        await remember_start(scene, run_id, "Make it dark.", "agent/asked-for")
        await scene.press("N")

        assert [field.value for field in scene.app.screen.query(Input)][:2] == ["acme/web", "agent/asked-for"]
        assert scene.app.screen.query_one(TextArea).text == "Make it dark."


async def test_a_run_that_goes_on_with_another_says_so(staged: Staged) -> None:
    """Where the service gave the next turn an id of its own."""
    async with staged() as scene:
        await scene.press("j")
        row = scene.table.row
        assert row is not None
        ledger, repository = scene.engine.ledger, Repository.parse("acme/web")
        request = ContinueRun("run_before", "More.", repository)
        action = await ledger.prepare(
            action_id=None,
            kind="run.continue",
            subject=request.subject,
            key="k",
            path=request.path,
            body_json=json.dumps(request.body()),
            actor="ada",
        )
        await ledger.sending(action.action_id)
        await ledger.confirm(action.action_id, result_id=row.run_id, response_json="{}")
        await scene.press("enter")

        assert "continues    run_before" in scene.text


async def test_the_json_is_shown_and_copied_as_received(staged: Staged, board: Board) -> None:
    """Unknown fields and all, from the table and from the run's own screen."""
    async with staged() as scene:
        await scene.press("v", "Y")
        shown = scene.text
        copied = scene.app.clipboard

        assert '"branch_name": "fix/login-timeout"' in shown
        assert json.loads(copied) == next(iter(board.runs.values()))


async def test_a_run_is_opened_by_the_configured_address(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its id is a part of the address, never more than that."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    async with staged() as scene:
        await scene.press("w")
        row = scene.table.row

    assert row is not None
    assert opened == [f"https://runs.example/{row.run_id}"]
