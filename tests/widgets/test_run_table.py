"""The table of runs on a screen of its own: it paints no frame of missing rows that are a moment away."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from textual.app import App, ComposeResult

from storage.records import RunFilter, RunRow, RunSort, RunWindow, WindowRequest
from tests.waiting import until
from widgets.runs.table import RunTable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOTAL = 1_000


class Table(App[None]):
    """Notes when the screen stops painting, and when it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []
        self.table = RunTable(NOON)

    def compose(self) -> ComposeResult:
        yield self.table

    @contextmanager
    def batch_update(self) -> Iterator[None]:
        self.noted.append("waits")
        with super().batch_update():
            yield
        self.noted.append("paints")

    def request(self) -> WindowRequest:
        return self.table.request(RunFilter(), RunSort())

    def answer(self, request: WindowRequest) -> None:
        rows = tuple(row(number) for number in range(request.offset, min(TOTAL, request.offset + request.limit)))
        self.table.show(RunWindow(TOTAL, request.offset, rows), request)


def row(number: int) -> RunRow:
    at = NOON - timedelta(minutes=number)
    return RunRow(f"run_{number}", "completed", "main", "acme/api", at, at, at, "current", is_final=True)


async def test_the_screen_waits_a_moment_for_rows_that_are_missing() -> None:
    """A page that is held is painted at once; a jump with its rows, or without them after the moment has passed."""
    app = Table()
    async with app.run_test(size=(100, 20)) as pilot:
        app.table.focus()
        app.answer(app.request())
        await pilot.press("pagedown")
        app.noted.clear()
        await pilot.press("down")
        assert app.noted == []

        before = app.request()
        app.table.action_last()
        app.answer(before)  # These rows were asked for before the jump: those of the end are still to come.
        assert app.noted == ["waits"]
        app.answer(app.request())
        assert app.noted == ["waits", "paints"]

        app.table.action_first()
        await until(
            lambda: app.noted[2:] == ["waits", "paints"],
            "the screen is painted without the rows",
            saw=lambda: app.noted,
        )

        app.answer(app.request())
        app.table.start_over(follow=False)
        assert app.noted[4:] == ["waits"]
        await app.table.remove()
        assert app.noted[4:] == ["waits", "paints"]
