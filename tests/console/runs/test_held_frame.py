"""The screen keeps its frame while rows are a moment away, and no longer."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from storage.records import RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from widgets.runs.table import HOLD_S, RunTable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOTAL = 1_000


class Table(App[None]):
    """A table whose rows come when the test gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[str] = []
        self.named: list[str | None] = []

    def compose(self) -> ComposeResult:
        yield RunTable(lambda: NOON, freeze=self._freeze)

    @contextmanager
    def _freeze(self) -> Iterator[None]:
        self.frames.append("kept")
        with self.batch_update():
            yield
        self.frames.append("free")

    def on_run_table_highlighted(self, message: RunTable.Highlighted) -> None:
        self.named.append(message.row.run_id if message.row else None)

    @property
    def table(self) -> RunTable:
        return self.query_one(RunTable)

    def give(self, here: WindowRequest | None = None) -> None:
        """The rows of where the table stands, or stood."""
        here = here or self.table.request(RunFilter(), RunSort())
        rows = tuple(row(number) for number in range(here.offset, min(TOTAL, here.offset + here.limit)))
        index = here.cursor_index if here.cursor_id is not None else None
        self.table.show(RunWindow(TOTAL, here.offset, rows, 0, index), here)


def row(number: int) -> RunRow:
    at = NOON - timedelta(minutes=number)
    return RunRow(f"run_{number}", "completed", "main", "acme/api", at, at, at, "current", is_final=True)


@asynccontextmanager
async def shown() -> AsyncIterator[tuple[Table, Pilot[None]]]:
    """The table at its top, with its rows."""
    app = Table()
    async with app.run_test(size=(100, 20)) as pilot:
        app.give()
        await pilot.pause()
        app.frames.clear()
        yield app, pilot


async def test_a_jump_is_painted_once_with_its_rows() -> None:
    """From the key until the last rows are there nothing is painted; then they are, and the run is named."""
    async with shown() as (app, pilot):
        app.table.action_last()
        kept = list(app.frames)  # Taken before the clock has had a turn.
        app.give()
        await pilot.pause()

        assert kept == ["kept"]
        assert app.frames == ["kept", "free"]
        assert app.named == ["run_0", f"run_{TOTAL - 1}"]


async def test_a_sought_run_is_sought_until_its_own_rows_come() -> None:
    """Those on the way were asked for before, with the cursor on another run."""
    async with shown() as (app, _):
        before = app.table.request(RunFilter(), RunSort())
        app.table.seek("run_500")
        app.give(before)

        assert app.table.request(RunFilter(), RunSort()).cursor_id == "run_500"


async def test_rows_that_are_here_are_painted_at_once() -> None:
    """A step, or a page within what was read, waits for nothing."""
    async with shown() as (app, pilot):
        await pilot.press("down", "pagedown")

        assert app.frames == []


async def test_a_wait_that_lasts_is_seen() -> None:
    """Rows that do not come within a moment leave the screen free to paint."""
    async with shown() as (app, pilot):
        app.table.action_last()
        while app.table.is_held:
            await pilot.pause(HOLD_S)

        assert app.frames == ["kept", "free"]


async def test_rows_of_where_the_reader_was_do_not_end_the_wait() -> None:
    """He went on while they were read: those of where he is now are still to come."""
    async with shown() as (app, _):
        before = app.table.request(RunFilter(), RunSort())
        app.table.action_last()
        app.table.show(RunWindow(TOTAL, 0, tuple(row(number) for number in range(60)), 0, 0), before)

        assert app.table.is_held


async def test_a_table_that_goes_away_holds_nothing() -> None:
    """The screen it was on goes on painting."""
    async with shown() as (app, _):
        app.table.action_last()
        await app.table.remove()

        assert app.frames == ["kept", "free"]
