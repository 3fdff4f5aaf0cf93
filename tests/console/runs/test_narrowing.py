"""What a person acts on stays in sight, however the list is narrowed or widened."""

import itertools

from app.runs.screen import RunsScreen
from tests.console.conftest import SMALL, Staged
from tests.console.scenes import MINUTES_INTO_THE_DAY, a_day
from tests.lab import Lab


async def test_the_cursor_stays_on_the_screen(staged: Staged, board: Lab) -> None:
    """From the last run of many, into a narrower list and back; nothing is called new that is not."""
    a_day(board, 300)
    async with staged(SMALL) as scene:
        screen = scene.app.screen
        assert isinstance(screen, RunsScreen)
        for line in ("status:completed", "status:failed", "repo:acme/web", "status:completed,failed"):
            await scene.press("G")
            last = screen.focused_run_id

            for text in (line, ""):
                screen.set_line(text)
                await scene.settle()
                assert scene.table.cursor in scene.table.visible_rows
                assert screen.focused_run_id is not None
                assert " new ↑" not in scene.text
            if line == "status:completed":
                assert screen.focused_run_id == last


async def test_what_is_typed_behind_a_view_is_a_term_of_its_own(staged: Staged, board: Lab) -> None:
    """`/` begins with a blank, and what means nothing cannot be kept as a view."""
    a_day(board)
    async with staged() as scene:
        await scene.press("right_square_bracket", "slash", *"repo:acme")
        screen = scene.app.screen
        assert isinstance(screen, RunsScreen)
        assert screen.table_query.line.split() == ["is:active", "repo:acme"]

        await scene.press("escape")
        screen.set_line("is:activerepo:acme")
        await scene.press("ctrl+s")
        assert isinstance(scene.app.screen, RunsScreen)


async def test_a_list_that_nobody_moves_in_stays_at_its_top(staged: Staged, board: Lab) -> None:
    """With the cursor on its first run, however many arrive; a move pins it to a run, and home ends that."""
    a_day(board, 300)
    async with staged(SMALL) as scene:
        screen = scene.app.screen
        assert isinstance(screen, RunsScreen)

        later = itertools.count()

        async def arrive(*names: str) -> str | None:
            for name in names:
                board.put(name, "queued", created=MINUTES_INTO_THE_DAY + next(later) / 1000)
            await scene.sync()
            return screen.focused_run_id

        assert await arrive("run_a") == "run_a"
        assert await arrive(*(f"run_b{number:02}" for number in range(40))) == "run_b39"
        assert " new ↑" not in scene.text
        await scene.press("j", "k")
        assert await arrive("run_c") == "run_b39"
        await scene.press("g")
        assert screen.focused_run_id == "run_c"
        assert await arrive("run_d") == "run_d"
