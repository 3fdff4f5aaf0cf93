"""Questions, approvals and unhandled failures are shown above the list of runs."""

from tests.console.conftest import WIDE, Scene, Staged
from tests.lab import Lab
from widgets.inbox import NeedsYou


def above(scene: Scene) -> list[str]:
    """The lines above the column titles."""
    lines = [line.strip() for line in scene.lines]
    first = next((at for at, line in enumerate(lines) if line.startswith("needs you")), len(lines))
    titles = next(at for at, line in enumerate(lines) if line.startswith("status "))
    return lines[first:titles]


async def test_items_that_need_you_are_above_the_list(staged: Staged, board: Lab) -> None:
    """An empty section takes no line, the cursor stays on its run, and enter opens the item in the inbox."""
    failed = [run_id for run_id, run in board.runs.items() if run["status"] == "failed"]
    for run_id in failed:
        board.move(run_id, "completed")
    async with staged(WIDE, needs_you=True) as scene:
        await scene.press("j", "j")
        here = scene.app.screen.focused_run_id
        assert above(scene) == []

        board.move(failed[0], "failed")
        await scene.sync()
        await scene.settle()
        (_, item) = above(scene)
        assert "failed" in item
        assert scene.app.screen.focused_run_id == here

        await scene.press("shift+tab")
        assert not scene.app.screen.check_action("cancel_run", ())
        await scene.press("enter")
        assert scene.app.current_mode == "inbox"
        await scene.press("e", "1")
        await scene.settle()
        assert above(scene) == []
        # An item that disappears before its key is handled opens nothing.
        scene.app.screen.query_one(NeedsYou).post_message(NeedsYou.Chosen())
        await scene.settle()
        assert scene.app.current_mode == "runs"
