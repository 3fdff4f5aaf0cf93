"""Gaps between the runs: a line in their place, which fetches them."""

from datetime import UTC, datetime, timedelta

from app.engine.text import SafeText
from storage.records import CoverageGap, RunFilter, RunRow, RunSort, RunWindow
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.runs.conftest import HELD, cursor_line
from tests.lab import Lab
from tests.widgets.stage import staged
from widgets.runs.table import RunTable

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


async def with_a_gap(scene: Scene, board: Lab, new: int = 50) -> None:
    """So many new runs since the last poll, which reads the newest 20 of them."""
    for number in range(new):
        board.put(f"run_new{number:03}", "completed" if number % 2 else "failed", created=601.0 + number)
    await scene.tick(minutes=new + 30)
    await scene.sync()


def gap_lines(scene: Scene) -> list[int]:
    return [number for number, line in enumerate(scene.lines) if "are not fetched" in line and "before" not in line]


async def test_a_gap_is_a_line_between_its_neighbours(begun: Staged, board: Lab) -> None:
    """Enter on it fetches what is missing there, and then it is gone; the cursor is on the first of those runs."""
    async with begun(SMALL) as scene:
        await with_a_gap(scene, board)
        assert (scene.table.count, scene.table.total) == (2 * HELD, 2 * HELD + 2)

        await scene.press("g", *["down"] * HELD)
        assert "runs from" in cursor_line(scene)
        assert "are not fetched · enter fetch them" in cursor_line(scene)
        assert "Not here: runs from" in scene.text
        await scene.press("enter")

        assert not scene.table.gaps
        assert scene.table.count >= 50 + HELD
        assert scene.table.row is not None
        assert scene.table.row.run_id == "run_new029"
        await scene.press("G")
        assert "runs before" in cursor_line(scene)


async def test_the_cursor_stays_on_a_gap(begun: Staged, board: Lab) -> None:
    """Where runs arrive above it; a range of marks stops there; a click fetches."""
    async with begun(WIDE) as scene:
        await with_a_gap(scene, board)
        await scene.press("g", *["down"] * (HELD - 1), "J")
        assert not scene.table.marks.ids
        await scene.press("down")
        board.put("run_newest", "queued", created=660.0)
        await scene.sync()
        assert "runs from" in cursor_line(scene)

        (line,) = gap_lines(scene)
        await scene.pilot.click(offset=(30, line))
        await scene.settle()
        assert not scene.table.gaps
        assert scene.table.count >= 51 + HELD


async def test_other_orders_have_no_gap(begun: Staged, board: Lab) -> None:
    """Where runs stand in another order than that of time; oldest first has it in its place."""
    async with begun(WIDE) as scene:
        await with_a_gap(scene, board)
        found = []
        for column in ("branch", "started", "started"):
            scene.table.post_message(RunTable.SortRequested(column))
            await scene.settle()
            found.append((len(scene.table.gaps), bool(gap_lines(scene))))

        assert found == [(0, False), (1, True), (1, True)]


def row(number: int) -> RunRow:
    at = NOON - timedelta(minutes=number)
    return RunRow(f"run_{number}", "completed", "main", "acme/api", at, at, at, "current", is_final=True)


async def test_rows_keep_their_place_while_others_are_on_their_way() -> None:
    """The cursor stays below its neighbour while a gap is being filled; a sought run is sought until its rows come."""
    table, gap = RunTable(NOON), CoverageGap(NOON - timedelta(hours=2), NOON)
    async with staged(table):
        table.show_missing({gap: (SafeText("runs are not fetched"),)})

        def show(numbers: list[int], gap_at: int) -> None:
            request = table.request(RunFilter(), RunSort())
            table.show(RunWindow(len(numbers) + 1, 0, tuple(map(row, numbers)), gaps=((gap_at, gap),)), request)

        rest = [0, 1, *range(100, 103)]
        show(rest, 2)
        table.put_cursor(2)
        assert table.is_at_gap
        show([0, 1, 2, 3, *rest[2:]], 4)  # Stored, but not yet counted as complete.
        assert table.row == row(2)

        before = table.request(RunFilter(), RunSort())
        table.seek("run_500")
        table.show(RunWindow(1, 0, (row(0),)), before)
        assert table.request(RunFilter(), RunSort()).cursor_id == "run_500"
