"""The cursor and the view of the table of runs stay on their runs."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from textual.strip import Strip

from storage.records import RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from tests.widgets.stage import staged
from widgets.frame import Notice
from widgets.runs.table import Position, RunTable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOTAL = 1_000


def row(number: int) -> RunRow:
    at = NOON - timedelta(minutes=number)
    return RunRow(f"run_{number}", "completed", "main", "acme/api", at, at, at, "current", is_final=True)


def window(first: int, *, total: int = TOTAL, shift: int = 0, cursor_index: int | None = None) -> RunWindow:
    """Sixty rows, from this one on."""
    return RunWindow(total, first, tuple(row(number) for number in range(first, first + 60)), shift, cursor_index)


@pytest.mark.parametrize(
    ("here", "asked", "answer", "there"),
    [
        ((0, 0, 0, False), ("run_0", None), (3, 3), (0, 0, 0)),  # untouched, at the top: the newest run
        ((0, 0, 0, True), ("run_0", None), (3, 3), (3, 0, 0)),
        ((19, 0, 0, True), ("run_19", None), (3, 22), (22, 3, 3)),  # pushed out of the view
        ((50, 40, 2, True), ("run_50", "run_50"), (3, 53), (53, 43, 5)),
        ((90, 40, 0, True), ("run_90", None), (3, 93), (93, 40, 0)),  # already out of view
        ((55, 40, 0, True), ("run_50", "run_50"), (3, 53), (58, 43, 3)),  # the user moved on meanwhile
    ],
)
def test_cursor_and_view_stay_on_their_runs(
    here: tuple[int, int, int, bool],
    asked: tuple[str, str | None],
    answer: tuple[int, int],
    there: tuple[int, int, int],
) -> None:
    """A view of 20 rows is compared before and after: cursor, first visible row and unseen runs."""
    cursor, top, unseen, is_pinned = here
    request = WindowRequest(RunFilter(), RunSort(), 0, 60, asked[1], cursor_id=asked[0])
    before = Position(cursor, top, 20, unseen, f"run_{cursor}", is_pinned=is_pinned)

    after = before.after(
        window(0), window(0, shift=answer[0], cursor_index=answer[1]), request, 1_003, is_replacing=False
    )

    assert (after.cursor, after.top, after.unseen) == there


def test_a_found_run_is_centred() -> None:
    """The search waits until the run is among the rows; rows of an earlier request do not end the search.

    Another query shows the cursor's run if it still matches, or begins at the top.
    """
    sought = Position(0, 0, 20, 0, "run_500", is_sought=True, is_pinned=True)
    asked = WindowRequest(RunFilter(), RunSort(), 0, 60, cursor_id="run_500")

    late = sought.after(window(0), window(0), replace(asked, cursor_id="run_0"), TOTAL, is_replacing=False)
    found = sought.after(window(0), window(480, cursor_index=500), asked, TOTAL, is_replacing=False)

    assert (late.cursor, late.is_sought) == (0, True)
    assert (found.cursor, found.top, found.unseen, found.is_sought) == (500, 490, 0, False)

    here = Position(70, 60, 20, 4, "run_70", is_pinned=True)
    asked = WindowRequest(RunFilter(), RunSort(), 0, 60, cursor_id="run_70")

    kept, gone = (
        here.after(window(60), window(0, total=100, cursor_index=index), asked, 100, is_replacing=True)
        for index in (95, None)
    )

    assert (kept.cursor, kept.top, kept.unseen) == (95, 80, 0)
    assert (gone.cursor, gone.top, gone.unseen) == (0, 0, 0)


async def test_the_explanation_of_an_empty_table_never_repaints_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The explanation's numbers change with each page; only an empty table is repainted."""
    table = RunTable(NOON)
    async with staged(table) as (app, pilot):
        drawn, line = list[int](), RunTable.render_line

        def watched(table: RunTable, y: int) -> Strip:
            drawn.append(y)
            return line(table, y)

        monkeypatch.setattr(RunTable, "render_line", watched)
        table.notice = Notice("∅", "Nothing was found among 12,345 runs")
        await pilot.pause()
        assert any("12,345" in line for line in app.lines)

        table.show(window(0), table.request(RunFilter(), RunSort()))
        await pilot.pause()
        assert "acme/api" in app.lines[1]
        drawn.clear()
        table.notice = Notice("∅", "Nothing was found among 12,346 runs")
        await pilot.pause()
        assert not drawn
