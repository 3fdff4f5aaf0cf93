"""Runs that are not here: they are said to be missing, and fetched when a person asks."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from app.api.errors import RateLimitedError
from app.engine.events import BackfillMoved, RunsChanged
from storage.records import RunChanges, RunWindow, WindowRequest
from storage.records.coverage import BackfillProgress
from tests.console.conftest import SMALL, Scene, Staged
from tests.console.quiet import strips
from tests.console.runs.conftest import HELD, cursor_line
from tests.lab import Lab
from tests.waiting import until
from widgets.kit import NO_KEY
from widgets.kit.cursor_view import HEADER

TAIL = "runs before 19:36:42 are not fetched · enter fetch them"


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
        await scene.pilot.press(f"{NO_KEY}{key}" if key.startswith("runs.") else key)
    await until(lambda: shows in scene.text, f"the screen shows {shows}", saw=lambda: scene.text)


async def test_the_last_line_fetches_what_is_older(begun: Staged, board: Lab) -> None:
    """Enter on it brings the runs in its place, and then nothing is said to be missing; new runs above leave it."""
    async with begun(SMALL) as scene:
        assert "since 19:36:42" in scene.text
        await scene.press("G")
        assert TAIL in cursor_line(scene)
        assert "Not here: runs before 19:36:42." in scene.text
        board.put("run_new", "queued", created=600.0)
        await scene.sync()
        assert TAIL in cursor_line(scene)
        assert scene.table.count == HELD + 1

        await scene.press("enter")

        assert scene.table.count == 61
        assert TAIL not in scene.text
        assert scene.table.row is not None
        assert scene.table.row.run_id.startswith("run_01JX0020")
        await scene.press("G")
        assert scene.table.row.run_id.startswith("run_01JX0059")


async def test_what_is_missing_is_still_said_after_a_restart(begun: Staged) -> None:
    """Before anything is asked of the service; and up to when the rest is complete."""
    async with begun():
        pass
    async with begun(synced=False) as scene:
        await scene.tick(minutes=5)
        assert "from 19:36:42 to 22:00:00" in scene.text

        await scene.press("G", "enter")

        assert scene.table.count == 60


async def test_an_empty_result_says_where_it_looked_and_asks_for_more(begun: Staged) -> None:
    """A run id that is not here is found by one key."""
    async with begun() as scene:
        await scene.press("slash", *"jx0045", "enter")
        await scene.shows("Searched only the 20 runs that are here;", "No run matches here")

        await scene.press("enter")

        assert scene.table.row is not None
        assert scene.table.row.run_id.startswith("run_01JX0045")


async def test_older_runs_of_a_status_are_asked_for_with_it(begun: Staged, board: Lab) -> None:
    """Not the whole history: a few pages each time, and once the service has no more, nothing is said to be missing."""
    failed = [f"run_old{number:03}" for number in range(30)]
    for number in range(900):
        created = -10.0 * number - 1_000
        status = "failed" if number < 30 else "completed"
        board.put(f"run_old{number:03}", status, created=created, updated=created + 4)
    async with begun() as scene:
        await scene.press("slash", *"status:failed", "enter")
        asked, held = len(board.list_queries), scene.table.count
        await scene.press("runs.older")
        first = scene.table.count
        await scene.press("runs.older", "runs.older", "runs.older")

        assert held < first <= held + HELD
        assert scene.table.count >= len(failed)
        assert len(board.list_queries) - asked < 24
        assert "not fetched" not in scene.text
        await scene.press("escape", "G")
        assert TAIL in cursor_line(scene)


async def test_a_date_before_what_is_held_is_fetched_since_then(begun: Staged, hanging: list[datetime | None]) -> None:
    """A query within what is held offers nothing; escape stops the fetching before anything else."""
    async with begun() as scene:
        await scene.press("slash", *"since:1h", "enter")
        assert "not fetched" not in scene.text
        await scene.press("escape", "slash", *"since:4h", "enter", "G")
        await pressed(scene, "enter", shows="so far · esc stop")

        assert hanging == [scene.clock() - timedelta(hours=4)]
        await scene.press("escape")
        assert TAIL in scene.text

        await scene.press("escape", "slash", *"nowhere", "enter")
        await pressed(scene, "runs.older", shows="esc stop")
        assert "0 so far" in scene.text
        await scene.press("escape")
        assert "Press enter to ask the service" in " ".join(scene.text.split())
        assert "nowhere" in scene.text


async def test_a_rate_limit_is_waited_for_and_said(begun: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the time at which it goes on; a click fetches as enter does, and one is enough."""

    async def refused(*_: object, **__: object) -> None:
        raise RateLimitedError("Slow down.", retry_after_s=72.0)

    async with begun() as scene:
        with monkeypatch.context() as patch:
            patch.setattr("app.sync.backfill.Backfill.fetch_older", refused)
            await scene.press("G")
            await pressed(scene, "enter", shows="waiting until 22:01:12: rate limit · esc stop")
            await scene.press("escape")
        assert TAIL in scene.text

        await scene.pilot.click("RunTable", offset=(30, HEADER + HELD))
        await scene.settle()
        assert scene.table.count == 60


def moved(scene: Scene, progress: BackfillProgress) -> BackfillMoved:
    scene.engine.backfill.progress = progress
    return BackfillMoved(progress)


RUNNING = BackfillProgress("running", 3_000, 10_000, seconds_left=130.0)


async def test_the_backfill_is_paused_and_resumed_from_the_palette(begun: Staged) -> None:
    """It says how far it is, also in another console, until nothing more is heard of that; a pause is kept."""
    async with begun() as scene:
        await scene.ring(moved(scene, RUNNING))
        assert "fetching ██░░░░░░  30%  2m left" in scene.text

        await scene.press("runs.pause")

        assert "fetching is paused" in scene.text
        assert await scene.engine.cache.backfill_paused()
    async with begun(synced=False) as scene:
        assert "fetching is paused" in scene.text
        await scene.press("runs.resume")

        assert not await scene.engine.cache.backfill_paused()
        assert "paused" not in scene.text

        await scene.engine.cache.store_progress(RUNNING, scene.clock())
        await scene.ring()
        assert "fetching ██░░░░░░  30%  2m left" in scene.text
        await scene.tick(minutes=1)
        await scene.ring()
        assert "fetching" not in scene.text


async def test_what_fills_in_the_background_is_read_once_a_second(
    begun: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pages come; a run that changed is read at once."""
    monkeypatch.setattr("app.console.base.TICK_S", 3_600.0)
    async with begun() as scene:
        await scene.ring(moved(scene, RUNNING))
        read: list[int] = []
        cache, window = scene.engine.cache, scene.engine.cache.window

        async def counted(request: WindowRequest) -> RunWindow:
            read.append(1)
            return await window(request)

        monkeypatch.setattr(cache, "window", counted)
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

        assert "complete" not in scene.lines[3]
        assert "until" not in scene.text


async def test_what_was_not_confirmed_for_long_is_not_shown_as_live(begun: Staged) -> None:
    """Its status is drawn quietly, and the detail says since when; the runs that a poll shows again are live."""
    async with begun(SMALL) as scene:
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
