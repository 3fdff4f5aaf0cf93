"""Marking runs and acting on all of them; the table's columns by key and by mouse."""

from textual import events

from tests.console.conftest import Scene, Staged
from tests.console.quiet import wheel
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.lab import Lab


def marked(scene: Scene) -> list[str]:
    return [row[:60] for row in scene.rows if "■" in row[:3]]


def said(scene: Scene) -> str:
    """What the toasts say."""
    return "\n".join(scene.toasts)


def titles(scene: Scene) -> list[str]:
    region = scene.table.region
    return scene.lines[region.y][region.x : region.right].replace("↓", " ").replace("▸", " ").split()


async def test_marks_stay_on_their_runs(staged: Staged, board: Lab) -> None:
    """Whatever arrives above them, in whichever order they stand, and while a filter hides them."""
    async with staged() as scene:
        await scene.press("j", "space", "space")
        before = scene.table.marks.ids
        board.put("run_new", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()
        await scene.press("runs.order", "enter")
        await scene.press("G")
        assert len(marked(scene)) == 2

        await scene.press("slash", *"tools", "enter")
        assert "■ 2 marked" in scene.text
        assert scene.table.marks.ids == before


async def test_columns_are_chosen_moved_and_stretched(staged: Staged) -> None:
    """By keys, and enter save it for next time; by clicks on the sheet's lines and on the words of its hint."""
    async with staged((140, 40)) as scene:
        assert titles(scene) == ["status", "repository", "started", "took", "branch"]

        await scene.press("runs.columns", *"jjjjjjj", "space", "shift+up", "shift+up", "shift+up", "enter")
        assert titles(scene) == ["status", "repository", "updated", "started", "took", "branch"]
        assert scene.app.screen.preferences.now.columns.shown[4] == "updated"

        await scene.press("runs.columns", "j", "greater_than_sign", "greater_than_sign", "enter")
        assert "repository" in scene.table.columns.choice.widths

        await scene.press("runs.columns", "0", "enter")
        assert titles(scene) == ["status", "repository", "started", "took", "branch"]

        await scene.press("runs.columns")
        for words in ("run    ", "- up", "> wider", "enter save"):
            line = next(line for line in reversed(scene.lines) if f" {words}" in line)
            await scene.pilot.click(offset=(line.index(f" {words}") + 2, scene.lines.index(line)))
            await scene.settle()
        assert titles(scene) == ["status", "repository", "started", "took", "run", "branch"]


async def test_the_wheel_and_the_scroll_bar_move_the_view(staged: Staged, board: Lab) -> None:
    """The cursor stays on its run, and every line on show is filled in."""
    for number in range(400):
        board.put(f"run_old{number:03}", "completed", created=-number - 10.0, branch_name=f"old-{number:03}")
    async with staged() as scene:
        before, pilot = scene.table.row, scene.pilot
        await wheel(scene.app, "RunTable", (10, 5), events.MouseScrollDown)
        assert scene.table.scroll_offset.y > 0

        bar = scene.table.vertical_scrollbar
        await pilot.mouse_down(bar, offset=(0, 1))
        await pilot.hover(bar, offset=(0, bar.size.height - 3))
        await pilot.mouse_up(bar, offset=(0, bar.size.height - 3))
        await scene.settle()
        assert "old-3" in scene.rows[0]
        assert not any(row.strip().startswith("·") for row in scene.rows)
        assert scene.table.row == before
