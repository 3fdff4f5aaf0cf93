"""Runs that are not here: they are said to be missing, and fetched when a person asks."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from app.api.errors import RateLimitedError
from app.events import BackfillMoved, RunsChanged
from storage.cache import Cache
from storage.records import RunChanges
from storage.records.backfill import BackfillProgress
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.quiet import strips
from tests.console.scenes import TOKEN_VARIABLE, settings_for
from tests.run_board import Board
from widgets.cursor_view import HEADER
from widgets.runs.table import RunTable

HELD = 20
TAIL = "runs before 20:14:06 are not fetched · enter fetches them"


@pytest.fixture
def begun(staged: Staged, board: Board, tmp_path: Path) -> Staged:
    """Puts a console on show whose first refresh reads the newest 20 of 60 runs."""

    def begin(size: tuple[int, int] = WIDE, *, synced: bool = True) -> AbstractAsyncContextManager[Scene]:
        os.environ[TOKEN_VARIABLE] = "token-of-the-scene"  # The engine before it took it.
        profile = settings_for(board.base_url, tmp_path).profile()
        poll = replace(profile.poll, page_size=HELD, first_runs=HELD)
        return staged(size, synced=synced, changed={"profiles": (replace(profile, poll=poll),)})

    return begin


def cursor_line(scene: Scene) -> str:
    return next(line for line in scene.lines if line.startswith("▌"))


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[datetime | None]:
    """The service does not answer a request for older runs; the times since when they were asked for."""
    asked: list[datetime | None] = []

    async def fetch_older(_: object, *, since: datetime | None = None, **__: object) -> None:
        asked.append(since)
        await asyncio.Event().wait()

    monkeypatch.setattr("app.sync.backfill.Backfill.fetch_older", fetch_older)
    return asked


async def pressed(scene: Scene, *keys: str, shows: str) -> None:
    """Presses keys that start what does not end, and waits for what they lead to."""
    for key in keys:
        await scene.pilot.press(key)
    async with asyncio.timeout(60):
        while shows not in scene.text:  # noqa: ASYNC110 — what it waits for is on the screen
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_the_last_line_fetches_what_is_older(begun: Staged, size: Any) -> None:
    """Enter on it brings the runs in its place, and then nothing is said to be missing."""
    async with begun(size) as scene:
        assert "since 20:14:06" in scene.text
        await scene.press("G")
        assert TAIL in cursor_line(scene)
        assert "Not here: runs before 20:14:06." in scene.text

        await scene.press("enter")

        assert scene.table.count == 60
        assert TAIL not in scene.text
        assert scene.table.row is not None
        assert scene.table.row.run_id.startswith("run_01JX0020")
        await scene.press("G")
        assert scene.table.row.run_id.startswith("run_01JX0059")


async def test_a_click_fetches_as_enter_does(begun: Staged) -> None:
    """One is enough: nothing else can be done with that line."""
    async with begun() as scene:
        await scene.pilot.click("RunTable", offset=(30, HEADER + HELD))
        await scene.settle()

        assert scene.table.count == 60


async def with_a_gap(scene: Scene, board: Board, new: int = 50) -> None:
    """So many new runs since the last poll, which reads the newest 20 of them."""
    for number in range(new):
        board.put(f"run_new{number:03}", "completed" if number % 2 else "failed", created=601.0 + number)
    await scene.tick(minutes=new + 30)
    await scene.sync()


def gap_lines(scene: Scene) -> list[int]:
    return [number for number, line in enumerate(scene.lines) if "are not fetched" in line and "before" not in line]


@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_a_gap_is_a_line_between_its_neighbours(begun: Staged, board: Board, size: Any) -> None:
    """Enter on it fetches what is missing there, and then it is gone; the cursor is on the first of those runs."""
    async with begun(size) as scene:
        await with_a_gap(scene, board)
        assert (scene.table.count, scene.table.total) == (2 * HELD, 2 * HELD + 2)

        await scene.press("g", *["down"] * HELD)
        assert "runs from" in cursor_line(scene)
        assert "are not fetched · enter fetches them" in cursor_line(scene)
        assert "Not here: runs from" in scene.text
        await scene.press("enter")

        assert not scene.table.gaps
        assert scene.table.count >= 50 + HELD
        assert scene.table.row is not None
        assert scene.table.row.run_id == "run_new029"
        await scene.press("G")
        assert "runs before" in cursor_line(scene)


async def test_the_cursor_stays_on_a_gap(begun: Staged, board: Board) -> None:
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


async def test_other_orders_have_no_gap(begun: Staged, board: Board) -> None:
    """Where runs stand in another order than that of time; oldest first has it in its place."""
    async with begun(WIDE) as scene:
        await with_a_gap(scene, board)
        found = []
        for column in ("branch", "started", "started"):
            scene.table.post_message(RunTable.SortRequested(column))
            await scene.settle()
            found.append((len(scene.table.gaps), bool(gap_lines(scene))))

        assert found == [(0, False), (1, True), (1, True)]


async def test_what_is_missing_is_still_said_after_a_restart(begun: Staged) -> None:
    """Before anything is asked of the service; and up to when the rest is complete."""
    async with begun():
        pass
    async with begun(synced=False) as scene:
        await scene.tick(minutes=5)
        assert "complete 20:14:06 to 22:00:00" in scene.text

        await scene.press("G", "enter")

        assert scene.table.count == 60


async def test_new_runs_above_leave_the_cursor_on_the_last_line(begun: Staged, board: Board) -> None:
    """It stays what it was: the way to older runs."""
    async with begun(SMALL) as scene:
        await scene.press("G")
        board.put("run_new", "queued", created=600.0)
        await scene.sync()

        assert TAIL in cursor_line(scene)
        assert scene.table.count == HELD + 1


async def test_an_empty_result_says_where_it_looked_and_asks_for_more(begun: Staged) -> None:
    """A run id that is not here is found by one key."""
    async with begun() as scene:
        await scene.press("slash", *"jx0045", "enter")
        await scene.shows("Only the 20 runs that are here were looked at;", "No run matches here")

        await scene.press("enter")

        assert scene.table.row is not None
        assert scene.table.row.run_id.startswith("run_01JX0045")


async def test_older_runs_of_a_status_are_asked_for_with_it(begun: Staged, board: Board) -> None:
    """Not the whole history: a few pages each time, and once the service has no more, nothing is said to be missing."""
    failed = [f"run_old{number:03}" for number in range(30)]
    for number in range(900):
        board.put(f"run_old{number:03}", "failed" if number < 30 else "completed", created=-10.0 * number - 1_000)
    async with begun() as scene:
        await scene.press("slash", *"status:failed", "enter")
        asked, held = len(board.requests), scene.table.count
        await scene.press("M")
        first = scene.table.count
        await scene.press("M", "M", "M")

        assert held < first <= held + HELD
        assert scene.table.count >= len(failed)
        assert len(board.requests) - asked < 24
        assert "not fetched" not in scene.text
        await scene.press("escape", "G")
        assert TAIL in cursor_line(scene)


async def test_a_date_before_what_is_held_is_fetched_since_then(begun: Staged, hanging: list[datetime | None]) -> None:
    """A query within what is held offers nothing."""
    async with begun() as scene:
        await scene.press("slash", *"since:1h", "enter")
        assert "not fetched" not in scene.text
        await scene.press("escape", "slash", *"since:4h", "enter", "G")
        await pressed(scene, "enter", shows="so far · esc stops")

        assert hanging == [scene.clock() - timedelta(hours=4)]
        await scene.press("escape")
        assert TAIL in scene.text


async def test_escape_stops_the_fetching_before_anything_else(begun: Staged, hanging: list[datetime | None]) -> None:
    """The query stays as it is, and how far it came is said until then."""
    async with begun(SMALL) as scene:
        await scene.press("slash", *"nowhere", "enter")
        await pressed(scene, "M", shows="esc stops")
        assert "0 so far" in scene.text
        await scene.press("escape")

        assert "enter asks the service" in " ".join(scene.text.split())
        assert "nowhere" in scene.text


async def test_a_rate_limit_is_waited_for_and_said(begun: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time at which it goes on."""

    async def refused(*_: object, **__: object) -> None:
        raise RateLimitedError("Slow down.", retry_after_s=72.0)

    monkeypatch.setattr("app.sync.backfill.Backfill.fetch_older", refused)
    async with begun() as scene:
        await scene.press("G")
        await pressed(scene, "enter", shows="waiting until 22:01:12: rate limit · esc stops")
        await scene.press("escape")

        assert TAIL in scene.text


def moved(scene: Scene, progress: BackfillProgress) -> BackfillMoved:
    scene.engine.backfill.report.progress = progress
    return BackfillMoved(progress)


RUNNING = BackfillProgress("running", 3_000, 10_000, seconds_left=130.0)


async def test_the_backfill_is_paused_and_resumed_by_a_key(begun: Staged) -> None:
    """The key is offered while it does something; a pause is kept."""
    async with begun() as scene:
        assert "P pause" not in scene.text
        await scene.ring(moved(scene, RUNNING))
        assert "20 runs · fetching ██░░░░░░  30%  2m left" in scene.text
        assert "P pause fetching" in scene.lines[-1]

        await scene.press("P")

        assert "paused, P resumes" in scene.text
        assert "P resume fetching" in scene.lines[-1]
        assert await scene.engine.cache.backfill_paused()
    async with begun(synced=False) as scene:
        assert "paused, P resumes" in scene.text
        await scene.press("P")

        assert not await scene.engine.cache.backfill_paused()
        assert "paused" not in scene.text


async def test_what_another_console_fetches_is_shown_here(begun: Staged) -> None:
    """With its bar and the key that pauses it, until nothing more is heard of it."""
    async with begun() as scene:
        await scene.engine.cache.keep_progress(RUNNING, scene.clock())
        await scene.ring()
        assert "20 runs · fetching ██░░░░░░  30%  2m left" in scene.text
        assert "P pause fetching" in scene.lines[-1]

        await scene.tick(minutes=1)
        await scene.ring()
        assert "fetching" not in scene.text


async def test_what_fills_in_the_background_is_read_once_a_second(
    begun: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pages come; a run that changed is read at once."""
    monkeypatch.setattr("app.console.base_screen.TICK_S", 3_600.0)
    async with begun() as scene:
        await scene.ring(moved(scene, RUNNING))
        read: list[int] = []
        window = Cache.window

        async def counted(cache: Cache, *arguments: Any) -> Any:
            read.append(1)
            return await window(cache, *arguments)

        monkeypatch.setattr(Cache, "window", counted)
        for number in range(10):
            await scene.ring(moved(scene, replace(RUNNING, done_runs=3_000 + 100 * number)))
            await scene.ring(RunsChanged(RunChanges(new=(f"run_{number}",))))
        assert (len(read), "30%" in scene.text) == (0, True)

        await scene.tick(seconds=1)
        assert (len(read), "39%" in scene.text) == (1, True)

        await scene.ring(RunsChanged(RunChanges(updated=("run_x",))))
        assert len(read) == 2


async def test_a_poll_that_finds_nothing_new_keeps_what_is_complete_current(staged: Staged) -> None:
    """The line is as young as the last answer, not as the last change."""
    async with staged() as scene:
        await scene.tick(minutes=5)
        assert "complete until 22:00:00" in scene.text
        await scene.sync()

        assert "60 runs · complete" in scene.text
        assert "until" not in scene.text


async def at_the_end(scene: Scene) -> None:
    await scene.press("G")


async def running(scene: Scene) -> None:
    await scene.ring(moved(scene, RUNNING))


async def paused(scene: Scene) -> None:
    await scene.engine.backfill.pause()
    await scene.press("G")


async def waiting(scene: Scene) -> None:
    until = scene.clock() + timedelta(seconds=72)
    await scene.ring(moved(scene, BackfillProgress("waiting", until=until, why="rate_limited")))
    await scene.press("G")


async def nothing_here(scene: Scene) -> None:
    await scene.press("slash", *"jx0045", "enter")


async def long_ago(scene: Scene) -> None:
    await scene.press("G", "enter")
    await scene.tick(days=8)
    await scene.sync()
    await scene.tick()


PICTURED = [at_the_end, running, paused, waiting, nothing_here, long_ago]


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=["80x24", "140x40"])
@pytest.mark.parametrize("state", PICTURED, ids=lambda state: state.__name__)
async def test_what_is_missing_in_pictures(
    begun: Staged,
    picture: SnapshotAssertion,
    size: tuple[int, int],
    state: Callable[[Scene], Awaitable[None]],
) -> None:
    """Each state of the line above the runs, and of the one below them."""
    async with begun(size) as scene:
        await state(scene)

        assert scene.app.export_screenshot() == picture


@pytest.mark.parametrize("size", [SMALL, WIDE])
async def test_what_was_not_confirmed_for_long_is_not_shown_as_live(begun: Staged, size: Any) -> None:
    """Its status is drawn quietly, and the detail says since when; the runs that a poll shows again are live."""
    async with begun(size) as scene:
        await scene.press("G", "enter", "G", "k")
        live = status_colour(scene)
        await scene.tick(days=8)
        assert status_colour(scene) != live
        await scene.shows("Last confirmed 8d ago")

        await scene.press("g", "j", "j", "j", "j")
        assert status_colour(scene) != live
        await scene.sync()
        await scene.tick()
        assert status_colour(scene) == live
        assert "Last confirmed" not in scene.text


def status_colour(scene: Scene) -> object:
    """That of the word under the cursor."""
    strip = next(strip for strip in strips(scene.app) if strip and strip[0].text.startswith("▌"))
    return next(segment.style.color for segment in strip if "completed" in segment.text and segment.style)
