"""Marking runs."""

from tests.console.conftest import Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import Lab


async def test_marks_stay_on_their_runs(staged: Staged, board: Lab) -> None:
    """Marks stay, whatever arrives above, however the list is sorted, and while a filter hides the runs."""
    async with staged() as scene:
        await scene.press("j", "space", "space")
        marks = tuple(scene.table.marks)
        board.put("run_new", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()
        await scene.press("runs.order", "enter")
        await scene.press("G")
        assert len([row for row in scene.rows if "■" in row[:3]]) == 2

        await scene.press("slash", *"tools", "enter")
        assert "■ 2 marked" in scene.text
        assert tuple(scene.table.marks) == marks

        await scene.to_all_runs()
        await scene.press("runs.group", "asterisk")
        assert "12 runs     ✗ 1 failed" in scene.text
        assert len(scene.table.marks) == 61
