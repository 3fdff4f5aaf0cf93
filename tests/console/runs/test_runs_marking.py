"""Marking runs and acting on all of them; the table's columns by key and by mouse."""

import csv
import json
import os
from pathlib import Path

import pytest
from textual import events

from tests.console.conftest import SMALL, Scene, Staged
from tests.console.quiet import wheel
from tests.console.scenes import MINUTES_INTO_THE_DAY
from tests.run_board import Board
from widgets.cursor_view import HEADER


def marked(scene: Scene) -> list[str]:
    return [row[:60] for row in scene.rows if "■" in row[:3]]


def said(scene: Scene) -> str:
    """What the toasts say."""
    return "\n".join(scene.toasts)


def titles(scene: Scene) -> list[str]:
    region = scene.table.region
    return scene.lines[region.y][region.x : region.right].replace("↓", " ").replace("▸", " ").split()


async def test_marks_by_space_and_by_range(staged: Staged) -> None:
    """Space marks and goes on; shift marks on the way, and takes back on the way back."""
    async with staged() as scene:
        await scene.press("space", "space", "j")
        assert len(marked(scene)) == 2
        assert "■ 2 marked" in scene.text

        await scene.press("shift+down", "shift+down", "shift+down", "shift+up")
        assert len(marked(scene)) == 5

        await scene.press("escape")
        assert not marked(scene)
        assert "marked" not in scene.lines[4]


async def test_marks_stay_on_their_runs(staged: Staged, board: Board) -> None:
    """Whatever arrives above them, in whichever order they stand, and while a filter hides them."""
    async with staged() as scene:
        await scene.press("j", "space", "space")
        before = scene.table.marks.ids
        board.put("run_new", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()
        await scene.press("O")
        await scene.press("G")
        assert len(marked(scene)) == 2

        await scene.press("slash", *"tools", "enter")
        assert "■ 2 marked" in scene.text
        assert scene.table.marks.ids == before


async def test_everything_that_matches_is_marked_at_once(staged: Staged) -> None:
    """Once more takes the marks away."""
    async with staged() as scene:
        await scene.press("slash", *"tools", "enter", "asterisk")
        assert "■ 12 marked" in scene.text

        await scene.press("asterisk")
        assert not scene.table.marks


async def test_marks_by_mouse(staged: Staged) -> None:
    """Control and a click marks one; shift and a click all from there."""
    async with staged() as scene:
        await scene.pilot.click("RunTable", offset=(20, HEADER + 2), control=True)
        await scene.settle()
        assert len(marked(scene)) == 1

        await scene.pilot.click("RunTable", offset=(20, HEADER + 6), shift=True)
        await scene.settle()
        assert len(marked(scene)) == 5


@pytest.mark.parametrize("suffix", [".csv", ".ndjson", ".json"])
async def test_runs_are_exported_whole(staged: Staged, tmp_path: Path, suffix: str) -> None:
    """Those marked, or all that match; the file is its owner's alone."""
    path = tmp_path / f"out{suffix}"
    async with staged(SMALL) as scene:
        await scene.press("slash", *"flaky", "enter", "e")
        assert "Export 10 matching runs" in scene.text
        scene.app.screen.query_one("LineInput").value = str(path)
        await scene.press("enter")
        assert "10 runs written" in said(scene)

    text = path.read_text()
    if suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        branches = [row["branch_name"] for row in rows]
    elif suffix == ".ndjson":
        branches = [json.loads(line)["branch_name"] for line in text.splitlines()]
    else:
        document = json.loads(text)
        branches = [run["branch_name"] for run in document["runs"]]
        assert document["count"] == 10
        assert {"first_seen_at", "state", "stuck", "transitions"} <= set(document["runs"][0]["observed"])
    assert branches == ["agent/flaky-retry"] * 10
    assert path.stat().st_mode & 0o777 == 0o600
    assert [name for name in os.listdir(tmp_path) if "out" in name] == [path.name]  # noqa: PTH208 — in a coroutine


async def test_an_export_replaces_nothing_unasked(staged: Staged, tmp_path: Path) -> None:
    """A file that is there is said first; a folder that is not, too."""
    path = tmp_path / "there.csv"
    path.write_text("mine")
    async with staged() as scene:
        await scene.press("space", "e")
        assert "Export 1 marked run" in scene.text
        field = scene.app.screen.query_one("LineInput")
        for wrong, said in (("x.txt", "End the name in .csv"), (f"{tmp_path}/no/x.csv", "There is no folder")):
            field.value = wrong
            await scene.press("enter")
            assert said in scene.text
        field.value = str(path)
        await scene.press("enter")
        assert "Enter again replaces it" in scene.text
        assert path.read_text() == "mine"

        await scene.press("enter")

    assert len(path.read_text().splitlines()) == 2


async def test_columns_are_chosen_moved_and_stretched_by_keys(staged: Staged) -> None:
    """At once, behind the sheet; escape gives back what was, enter keeps it for next time."""
    async with staged((140, 40)) as scene:
        assert titles(scene) == ["status", "repository", "branch", "started", "took"]

        table = scene.table
        await scene.press("C", "j", "j", "space")
        assert table.choice.shown == ("status", "repository", "started", "took", "run")

        await scene.press("escape")
        assert titles(scene)[2] == "branch"

        await scene.press("C", *"jjjjjj", "space", "shift+up", "shift+up", "shift+up", "shift+up", "enter")
        assert titles(scene) == ["status", "repository", "updated", "branch", "started", "took"]
        assert scene.app.screen.preferences.now.columns.shown[2] == "updated"

        await scene.press("C", "j", "greater_than_sign", "greater_than_sign", "enter")
        assert scene.table.choice.width("repository") is not None

        await scene.press("C", "0", "enter")
        assert titles(scene) == ["status", "repository", "branch", "started", "took"]


async def test_columns_are_moved_and_stretched_by_mouse(staged: Staged) -> None:
    """A drag of a title moves it, of the gap behind it stretches it, a double click there fits it again."""
    async with staged() as scene:
        pilot, at = scene.pilot, {p.column.key: p for p in scene.table._layout.placed}
        await pilot.mouse_down("RunTable", offset=(at["started"].x + 1, 0))
        await pilot.hover("RunTable", offset=(at["branch"].x + 3, 0))
        await pilot.mouse_up("RunTable", offset=(at["branch"].x + 3, 0))
        await scene.settle()
        assert titles(scene) == ["status", "repository", "started", "branch", "took"]
        assert "started ↓" in scene.text

        edge = next(p for p in scene.table._layout.placed if p.column.key == "started").end
        await pilot.mouse_down("RunTable", offset=(edge, 0))
        await pilot.hover("RunTable", offset=(edge + 6, 0))
        await pilot.mouse_up("RunTable", offset=(edge + 6, 0))
        await scene.settle()
        assert scene.app.screen.preferences.now.columns.width("started") == 15

        edge = next(p for p in scene.table._layout.placed if p.column.key == "started").end
        await pilot.click("RunTable", offset=(edge, 0), times=2)
        await scene.settle()
        assert scene.table.choice.width("started") is None
        assert "started ↓" in scene.text


async def test_the_wheel_and_the_scroll_bar_move_the_view(staged: Staged, board: Board) -> None:
    """The cursor stays on its run, and every line on show is filled in."""
    for number in range(400):
        board.put(f"run_old{number:03}", "completed", created=-number - 10.0, branch_name=f"old-{number:03}")
    async with staged() as scene:
        before, pilot = scene.table.row, scene.pilot
        await wheel(pilot, "RunTable", (10, 5), events.MouseScrollDown)
        assert scene.table.scroll_offset.y > 0

        bar = scene.table.vertical_scrollbar
        await pilot.mouse_down(bar, offset=(0, 1))
        await pilot.hover(bar, offset=(0, bar.size.height - 3))
        await pilot.mouse_up(bar, offset=(0, bar.size.height - 3))
        await scene.settle()
        assert "old-3" in scene.rows[0]
        assert not any(row.strip().startswith("·") for row in scene.rows)
        assert scene.table.row == before


async def test_what_arrived_above_is_one_click_away(staged: Staged, board: Board) -> None:
    """The note in the titles' line says how many, and leads there."""
    async with staged() as scene:
        await scene.press("pagedown")
        for number in range(12):
            board.put(f"run_new{number}", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()
        x = scene.lines[scene.table.region.y].index("12 new")
        await scene.pilot.click(offset=(x, scene.table.region.y))
        await scene.settle()

        assert "new ↑" not in scene.text
        assert "queued" in scene.rows[0]
