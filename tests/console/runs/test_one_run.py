"""One run next to the list: its conversation, and the run that it continues."""

from app.api.requests import ContinueRun, StartRun, WriteRequest
from storage.records import Repository
from tests.console.conftest import Scene, Staged
from tests.console.scenes import enter

WEB = Repository.parse("acme/web")


async def confirmed(scene: Scene, request: WriteRequest, run_id: str) -> None:
    """Record this write as sent and confirmed, with this run as its result."""
    await enter(scene.engine.ledger, request, "confirmed", key=run_id, actor="ada", made=run_id)


async def test_a_run_shows_its_messages_and_branch(staged: Staged) -> None:
    """Each message shows its sender and outcome.

    If the next turn has its own id, the run that it continues is named.
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

        await scene.press("escape", "j")
        row = scene.table.row
        assert row is not None
        await confirmed(scene, ContinueRun("run_before", "More.", WEB), row.run_id)
        await scene.press("enter")

        assert "continues    run_before" in scene.text
