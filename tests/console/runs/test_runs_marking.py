"""Marking runs and acting on all of them; the table's columns by key and by mouse."""

from textual import events

from tests.console.conftest import SMALL, Scene, Staged
from tests.console.runs.test_missing_runs import cursor_line
from tests.console.scenes import MINUTES_INTO_THE_DAY, app_on
from tests.lab import Lab


def marked(scene: Scene) -> list[str]:
    return [row[:60] for row in scene.rows if "■" in row[:3]]


def titles(scene: Scene) -> list[str]:
    region = scene.table.region
    return scene.lines[region.y][region.x : region.right].replace("↓", " ").replace("▸", " ").split()


async def test_marks_stay_on_their_runs(staged: Staged, board: Lab) -> None:
    """Whatever arrives above them, in whichever order they stand, and while a filter hides them.

    The wheel and the scroll bar move the view alone: the cursor stays on its run, and every line on show is filled in.
    """
    for number in range(400):
        board.put(f"run_old{number:03}", "completed", created=-number - 10.0, branch_name=f"old-{number:03}")
    async with staged() as scene:
        before, pilot = scene.table.row, scene.pilot
        at = scene.table.region.offset
        scene.app.post_message(
            events.MouseScrollDown(None, at.x + 10, at.y + 5, 0, 0, 0, shift=False, meta=False, ctrl=False)
        )
        await scene.settle()
        assert scene.table.scroll_offset.y > 0
        bar = scene.table.vertical_scrollbar
        await pilot.mouse_down(bar, offset=(0, 1))
        await pilot.hover(bar, offset=(0, bar.size.height - 3))
        await pilot.mouse_up(bar, offset=(0, bar.size.height - 3))
        await scene.settle()
        assert "old-3" in scene.rows[0]
        assert not any(row.strip().startswith("·") for row in scene.rows)
        assert scene.table.row == before

        await scene.press("j", "space", "space")
        marks = scene.table.marks.ids
        board.put("run_new", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()
        await scene.press("runs.order", "enter")
        await scene.press("G")
        assert len(marked(scene)) == 2

        await scene.press("slash", *"tools", "enter")
        assert "■ 2 marked" in scene.text
        assert scene.table.marks.ids == marks


async def test_columns_are_chosen_moved_and_stretched(staged: Staged) -> None:
    """By keys, and enter saves it for next time; by clicks on the sheet's lines and on the words of its hint."""
    async with staged() as scene:
        await scene.press("runs.columns", *"jjjjjjj", "space", "shift+up", "shift+up", "shift+up", "enter")
        assert titles(scene) == ["status", "repository", "updated", "started", "took", "branch"]
        assert scene.app.screen.preferences.now.columns.shown[4] == "updated"  # type: ignore[attr-defined]
        await scene.press("runs.columns", "0", "enter", "runs.columns")
        for words in ("run    ", "- up", "> wider", "enter save"):
            line = next(line for line in reversed(scene.lines) if f" {words}" in line)
            await scene.pilot.click(offset=(line.index(f" {words}") + 2, scene.lines.index(line)))
            await scene.settle()
        assert titles(scene) == ["status", "repository", "started", "took", "run", "branch"]


def heads(scene: Scene) -> list[str]:
    return [line[2:24].strip() for line in scene.lines if line[2:3] in {"▸", "▾"}]


async def test_runs_are_grouped_folded_and_marked(staged: Staged) -> None:
    """The worst group first; enter, `z` and `Z` fold; the heads are not marked.

    A saved view brings its own groups; others keep those of the table, also in the next console.
    """
    async with staged(SMALL) as scene:
        await scene.press("runs.group")
        assert [name[2:] for name in heads(scene)] == [
            "acme/web", "acme/payment-service", "acme/infrastructure", "gitlab:acme/tools", "acme/api"
        ]  # fmt: skip
        assert "12 runs     ✗ 1 failed" in cursor_line(scene)
        assert "[All 60]" in scene.text

        await scene.press("j", "enter", "j", "j", "j")
        assert "▾ acme/payment-service" in scene.text
        assert "fix/login-timeout" in cursor_line(scene)

        await scene.press("runs.fold")
        assert "▸ acme/payment-service" in cursor_line(scene)

        await scene.press("runs.fold_all")
        assert "▾ acme/payment-service" in cursor_line(scene)

        await scene.press("asterisk")
        assert len(scene.table.marks) == 60

        await scene.press("escape", "runs.save_view", *"Mine", "enter")
        await scene.press("runs.group", "right_square_bracket")
        assert "acme/api" not in "".join(heads(scene))
        assert "main" in "".join(heads(scene))

        app = app_on(scene.app.settings, scene.clock, scene.engine)
        async with app.run_test(size=SMALL) as pilot:
            again = Scene(pilot, scene.engine, scene.clock)
            await again.settle()
            assert any("main" in head for head in heads(again))

            await again.press("left_square_bracket")
            assert "[Mine 60]" in again.text
            assert heads(again)[0].startswith("▾ acme/web")
