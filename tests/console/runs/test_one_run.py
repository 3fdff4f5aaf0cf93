"""One run: its conversation, its neighbours, its JSON, and what can be done with it."""

import pytest

from app.api.requests import ContinueRun, StartAgent, StartRun, WriteRequest
from app.results.service import ServiceExtension
from storage.records import Repository
from storage.records.results import RunTurns, Turn
from tests.console.conftest import Scene, Staged
from tests.console.scenes import enter
from widgets.runs.columns import ColumnChoice

WEB = Repository.parse("acme/web")


async def confirmed(scene: Scene, request: WriteRequest, run_id: str) -> None:
    """The ledger as it is after this was sent from here, and this run came of it."""
    await enter(scene.engine.ledger, request, "confirmed", key=run_id, actor="ada", made=run_id)


async def test_a_run_is_shown_with_what_was_said_and_with_its_branch(staged: Staged) -> None:
    """Who said it, when, and what became of it; the other runs on the branch are one key away.

    A new one like it begins with its repository, the branch as it was asked for, and the instructions. Where the
    service gave the next turn an id of its own, the run says which one it continues.
    """
    async with staged() as scene:
        await scene.press("j")
        run_id = scene.table.row.run_id if scene.table.row else ""
        await confirmed(scene, StartRun("Make it dark.", WEB, "agent/asked-for"), run_id)
        await scene.press("enter")

        assert "ada" in scene.text
        assert "✓ confirmed" in scene.text
        assert "Make it dark." in scene.text
        assert "On this branch  2 runs" in scene.text

        await scene.press("right_square_bracket")
        assert "completed" in scene.lines[3]
        assert "▸ ✓ completed" in scene.text
        assert "older" not in scene.lines[-1]
        assert "newer" in scene.lines[-1]

        await scene.press("left_square_bracket")
        assert run_id in scene.lines[3]

        await scene.press("escape", "j")
        row = scene.table.row
        assert row is not None
        await confirmed(scene, ContinueRun("run_before", "More.", WEB), row.run_id)
        await scene.press("enter")

        assert "continues    run_before" in scene.text


async def test_the_agent_that_works_on_a_run_is_named(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was started from here, or as the service says; in a column, beside the table and in full.

    So is the service's reason why a run failed, as safe text.
    """
    last = Turn(2, "failed", reason="The agent ended with \x1b[2J exit code 3.")

    async def turns(_: ServiceExtension, run_id: str) -> RunTurns:
        agent = None if run_id == "run_01JX00007F3KQ9ZT2M0000" else "told \x1b[2J by the service"
        return RunTurns(run_id, (Turn(1, "failed"), last), agent=agent)

    monkeypatch.setattr(ServiceExtension, "turns", turns)
    async with staged((140, 40)) as scene:
        run_id = scene.table.row.run_id if scene.table.row else ""
        await confirmed(scene, StartAgent("a/b \u202eevil", "acme/web"), run_id)
        scene.table.set_columns(ColumnChoice(("status", "agent", "run")))
        await scene.tick(seconds=1)
        await scene.shows("agent a/b \ufffdevil")
        listed = scene.rows[0]
        await scene.press("]", "]")
        await scene.tick(seconds=1)
        await scene.shows("agent told ␛[2J by the service")
        told = "\n".join(scene.rows)
        await scene.press("enter")
        await scene.shows("agent told ␛[2J by the service")
        await scene.press("escape", "home", "j", "j", "j")
        await scene.tick(seconds=1)
        await scene.shows("reason The agent ended with ␛[2J exit")
        assert "\x1b" not in scene.text

    assert "a/b \ufffdevil" in listed
    assert "told ␛[2J by" in told
