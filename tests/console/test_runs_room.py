"""The Runs room, over the real engine and a service on a real socket."""

import asyncio
from pathlib import Path

from app.config import CACHE_FILE, data_folder
from app.console.app import RunwardenApp
from app.engine import Engine
from storage.cache.first_paint import peek
from storage.records import RunFilter, RunSort
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY, SceneClock, engine_on, settings_for
from tests.run_board import Board
from widgets.cursor_view import HEADER
from widgets.filter.bar import SearchInput
from widgets.frame.notice import Banner
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


async def test_status_is_glyph_and_word(staged: Staged) -> None:
    """No status is told by its colour alone."""
    async with staged() as scene:
        for badge in ("● working", "○ queued", "✓ completed", "✗ failed"):
            assert badge in scene.text


async def test_the_cursor_stays_on_its_run_when_runs_arrive(staged: Staged, board: Board) -> None:
    """Three runs appear above; the cursor is on the same run as before."""
    async with staged() as scene:
        await scene.press("j", "j", "j")
        before = scene.table.row
        for number in range(3):
            board.put(f"run_new{number}", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()

        assert scene.table.row == before
        assert before is not None
        assert before.branch_name[:20] in cursor_line(scene)
        assert "63 runs" in scene.text


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


async def test_a_run_pushed_out_below_takes_the_view_along(staged: Staged, board: Board) -> None:
    """The cursor at the bottom of the first page stays on show when runs arrive above it."""
    async with staged(SMALL) as scene:
        page = scene.table.page
        await scene.press(*["j"] * (page - 1))
        before = scene.table.row
        for number in range(4):
            board.put(f"run_new{number}", "queued", created=MINUTES_INTO_THE_DAY)
        await scene.sync()

        assert scene.table.row == before
        assert cursor_line(scene)
        assert "4 new ↑" in scene.text


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


async def test_search_narrows_as_it_is_typed(staged: Staged) -> None:
    """Only matches remain; escape brings back everything and the keys go back to the rows."""
    async with staged() as scene:
        await scene.press("slash", *"dark-mode")
        await scene.press("enter")

        assert "10 of 60" in scene.text
        assert len(scene.rows) == 10
        assert all("dark-mode" in row for row in scene.rows)

        await scene.press("escape")

        assert "60 runs" in scene.text
        assert scene.app.screen.query_one(SearchInput).value == ""
        assert scene.app.focused is scene.table


async def test_a_search_without_matches_says_how_to_get_back(staged: Staged) -> None:
    """An empty table is explained."""
    async with staged() as scene:
        await scene.press("slash", *"nowhere", "enter")

        assert "No run matches" in scene.text
        assert "esc shows them again" in scene.text


async def test_the_status_filter_by_keys(staged: Staged) -> None:
    """Marking failed in the picker leaves the failed ones."""
    async with staged() as scene:
        await scene.press("s")

        assert "Show status" in scene.text

        await scene.press("j", "j", "j", "space", "enter")

        assert "4 of 60" in scene.text
        assert "status:failed" in scene.text
        assert all("✗ failed" in row for row in scene.rows)

        await scene.press("escape")

        assert "60 runs" in scene.text


async def test_views_by_keys_and_by_mouse(staged: Staged) -> None:
    """`]` goes through the views; a click picks one."""
    async with staged() as scene:
        await scene.press("right_square_bracket")

        assert "[Active]" in scene.text
        assert "4 of 60" in scene.text

        await scene.pilot.click("ViewBar", offset=(17, 0))
        await scene.settle()

        assert "[Failed 24h]" in scene.text
        assert scene.table.row is not None
        assert scene.table.row.status == "failed"


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


async def test_enter_opens_the_run_and_escape_comes_back_to_it(staged: Staged) -> None:
    """The run has the whole screen, with its raw JSON under v."""
    async with staged(SMALL) as scene:
        await scene.press("j", "enter")

        assert "Timeline" in scene.text
        assert "run_01JX0001" in scene.text

        await scene.press("v")

        assert '"branch_name": "agent/dark-mode"' in scene.text

        await scene.press("escape")

        assert "agent/dark-mode" in cursor_line(scene)


async def test_a_lost_service_leaves_the_rows_and_says_since_when(staged: Staged, board: Board) -> None:
    """Rows stay, the header says stale, the banner says what is still true; what goes on is counted no further."""
    async with staged() as scene:
        board.fail_from = 0
        await scene.tick(minutes=12)
        await scene.sync()
        await scene.tick(seconds=5)

        assert "◌ stale 12m: rate limited" in scene.text
        assert "it turns live by itself" in scene.text
        assert "fix/login-timeout" in scene.text
        assert "≥1m00s" in cursor_line(scene)

        board.fail_from = None
        await scene.sync()

        assert "● live" in scene.text
        assert not scene.app.screen.query_one(Banner).display


async def test_nothing_listens_and_nothing_was_ever_read(staged: Staged) -> None:
    """Without a cache an unreachable service fills the table's place with what to do."""
    async with staged(SMALL, base_url="http://127.0.0.1:9/v1") as scene:
        assert "The service cannot be reached" in scene.text
        assert "r asks again" in scene.text
        assert not scene.app.screen.query_one(Banner).display


async def test_a_service_without_runs_teaches_the_first_key(staged: Staged, board: Board) -> None:
    """Empty is not the same as unread."""
    board.runs.clear()
    async with staged(SMALL, synced=False) as scene:
        assert "Asking the service" in scene.text

        await scene.sync()

        assert "No runs yet" in scene.text
        assert "n starts one" in scene.text


async def test_hostile_names_are_shown_and_not_obeyed(staged: Staged, board: Board) -> None:
    """Escape sequences, markup and direction marks of a branch, a status and an id arrive as visible placeholders."""
    board.put(
        "run_\x1b[2J\u202e[/nope]",
        "wei\x1brd",
        created=MINUTES_INTO_THE_DAY,
        branch_name="\x1b]52;c;aGk=\x07[@click=app.quit]x[/]\nsecond",
    )
    for size in (SMALL, WIDE):
        async with staged(size) as scene:
            await scene.press("enter", "v")
            opened = scene.text
            await scene.press("escape")

            for text in (opened, scene.text):
                assert not set(text) & {"\x1b", "\x07", "\u202e"}
            assert "wei␛rd" in scene.text
            assert "␛]52;c;aGk=␇[@click" in cursor_line(scene)


async def test_columns_scroll_sideways_and_the_first_two_stay(staged: Staged) -> None:
    """At 80 columns the run id is one key to the right; status and repository do not move."""
    async with staged(SMALL) as scene:
        head = scene.lines[4][:30]
        assert "F3KQ9ZT2M" not in "\n".join(scene.rows)

        await scene.press("right")

        assert scene.lines[4][:30] == head
        assert all("3KQ9ZT2M" in row for row in scene.rows)

        await scene.press("left", "left", "left")

        assert "started ↓" in scene.lines[4]


async def test_ages_move_without_a_poll(staged: Staged) -> None:
    """Time alone changes what the lines say, and only lines whose words change are painted."""
    async with staged() as scene:
        await scene.tick(seconds=61)

        assert "2m ago" in scene.rows[0]


async def test_a_run_that_is_stuck_is_flagged_only_while_the_facts_are_fresh(staged: Staged, board: Board) -> None:
    """Half an hour without an answer makes nothing stuck."""
    async with staged() as scene:
        flagged = scene.text.count("working !")
        board.fail_from = 0
        await scene.tick(minutes=300)
        await scene.sync()
        await scene.ring()

        assert scene.text.count("working !") == flagged


async def test_the_detail_takes_the_form_that_fits(staged: Staged) -> None:
    """Beside the table, below it, or as two lines."""
    for size, form in (((140, 40), "column"), ((100, 40), "column"), ((80, 24), "strip")):
        async with staged(size) as scene:
            pane = scene.app.screen.query_one(RunPane)

            assert pane._form == form
            assert (pane.region.x > 40) == (size[0] >= 120)


async def test_copying_the_id(staged: Staged) -> None:
    """The key y copies the id of the run under the cursor."""
    async with staged() as scene:
        await scene.press("y")

        assert scene.table.row is not None
        assert scene.app.clipboard == scene.table.row.run_id
