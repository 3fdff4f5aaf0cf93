"""The Runs room, over the real engine and a service on a real socket."""

import asyncio
from pathlib import Path

import pytest

from app.config import CACHE_FILE, data_folder
from app.console.app import RunwardenApp
from app.engine import Engine
from storage.cache.first_paint import peek
from storage.records import RunFilter, RunSort
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY, SceneClock, engine_on, settings_for
from tests.run_board import Board
from widgets.cursor_view import HEADER
from widgets.runs.pane import RunPane


def cursor_line(scene: Scene) -> str:
    return next(line for line in scene.lines if line.startswith("▌"))


async def test_cached_rows_are_painted_before_the_engine_is_open(board: Board, tmp_path: Path) -> None:
    """The first picture needs the cache file alone: here the engine never opens."""
    clock, settings = SceneClock(), settings_for(board.base_url, tmp_path)
    async with engine_on(settings, clock) as engine:
        await engine.refresh()

    async def never() -> Engine:
        await asyncio.Event().wait()
        raise AssertionError

    first = peek(data_folder(settings, settings.profile()) / CACHE_FILE, RunFilter(), RunSort(), 120)
    app = RunwardenApp(settings, settings.profile(), never, first, clock)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        text = Scene(pilot, None, clock).text  # type: ignore[arg-type]

        assert "fix/login-timeout" in text
        assert "60 runs · complete" in text


async def test_nothing_moves_under_a_reader_who_scrolled_away(staged: Staged, board: Board) -> None:
    """Runs that arrive above leave every line where it is, and are announced quietly."""
    async with staged() as scene:
        await scene.press("pagedown")
        rows = scene.rows
        for number in range(12):
            board.put(f"run_new{number}", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()

        assert scene.rows == rows
        assert "12 new ↑" in scene.text

        await scene.press("g")

        assert "new ↑" not in scene.text
        assert "run_new" in scene.text


async def test_a_status_that_changes_is_painted_on_its_line(staged: Staged, board: Board) -> None:
    """The run under the cursor completes; its line and its detail say so."""
    async with staged() as scene:
        run_id = scene.table.row.run_id if scene.table.row else ""
        run = board.runs[run_id]
        assert "● working" in cursor_line(scene)
        board.runs[run_id] = {**run, "status": "completed", "updated_at": "2026-05-01T21:59:59Z"}
        await scene.sync()

        assert "✓ completed" in cursor_line(scene)
        assert "working" in scene.text.split("Timeline")[1].split("Conversation")[0]


async def test_the_window_follows_to_the_end_of_a_long_list(staged: Staged, board: Board) -> None:
    """The last of 900 runs is shown although only a few pages of them are ever held."""
    for number in range(900):
        board.put(f"run_old{number:03}", "completed", created=-number - 10.0, branch_name=f"old-{number:03}")
    async with staged(SMALL) as scene:
        await scene.press("G")

        assert "old-899" in cursor_line(scene)
        assert len(scene.table._window.rows) < 100

        await scene.press("pageup")

        assert "old-88" in cursor_line(scene)

        await scene.press("g")

        assert "fix/login-timeout" in cursor_line(scene)


async def test_the_mouse_picks_opens_and_sorts(staged: Staged) -> None:
    """A click moves the cursor, a title sorts, a double click opens."""
    async with staged() as scene:
        await scene.pilot.click("RunTable", offset=(20, HEADER + 3))
        await scene.settle()

        assert scene.table.row is not None
        assert scene.table.row.status == "failed"

        await scene.pilot.click("RunTable", offset=(20, 0))
        await scene.settle()
        repositories = [row[17:37].strip() for row in scene.rows]

        assert repositories == sorted(repositories)
        assert "repository ↑" in scene.text

        await scene.pilot.click("RunTable", offset=(20, HEADER + 2), times=2)
        await scene.settle()

        assert "esc back" in scene.text


async def test_ages_move_without_a_poll(staged: Staged) -> None:
    """Time alone changes what the lines say, and only lines whose words change are painted."""
    async with staged() as scene:
        await scene.tick(seconds=61)

        assert "2m ago" in scene.rows[0]


async def test_a_poll_that_changes_nothing_paints_no_whole_screen(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header is told how the link is; what stands below it is left alone."""
    async with staged() as scene:
        screen = scene.app.screen
        painted: list[object] = []
        plain = screen.refresh
        monkeypatch.setattr(screen, "refresh", lambda *a, **k: painted.append(k) or plain(*a, **k))
        await scene.sync()

        assert painted == []


async def test_the_detail_takes_the_form_that_fits(staged: Staged) -> None:
    """Beside the table, below it, or as two lines."""
    for size, form in (((140, 40), "column"), ((100, 40), "column"), ((80, 24), "strip")):
        async with staged(size) as scene:
            pane = scene.app.screen.query_one(RunPane)

            assert pane._form == form
            assert (pane.region.x > 40) == (size[0] >= 120)


async def test_history_that_a_poll_completed_is_called_complete(staged: Staged, board: Board) -> None:
    """Its runs are announced as they are stored, before it is known that none is missing."""
    async with staged(WIDE, synced=False) as scene:
        engine = scene.engine
        page = await engine.client.list_runs(page_size=100)
        await engine.runs.store(page.runs)
        await scene.shows("history not complete yet")

        await engine.cache.extend_coverage(None, scene.clock())
        await engine.runs.record(None)
        await scene.shows("runs · complete")
