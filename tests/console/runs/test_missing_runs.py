"""Runs that are not here: they are said to be missing, and fetched when a person asks; gaps stand in their place."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from app.api.errors import RateLimitedError
from app.engine.events import BackfillMoved
from storage.records.coverage import BackfillProgress
from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.quiet import strips
from tests.console.scenes import TOKEN_VARIABLE, settings_for
from tests.lab import Lab
from tests.waiting import until
from widgets.kit import NO_KEY
from widgets.runs.table import RunTable

HELD = 20
"""How many runs the first refresh of a console that has `begun` reads."""


@pytest.fixture
def begun(staged: Staged, board: Lab, tmp_path: Path) -> Staged:
    """Puts a console on show whose first refresh reads the newest 20 of 60 runs."""

    def begin(size: tuple[int, int] = WIDE, *, synced: bool = True) -> AbstractAsyncContextManager[Scene]:
        os.environ[TOKEN_VARIABLE] = "token-of-the-scene"  # The engine before it took it.
        profile = settings_for(board.base_url, tmp_path).profile()
        poll = replace(profile.poll, page_size=HELD, first_runs=HELD)
        return staged(size, synced=synced, changed={"profiles": (replace(profile, poll=poll),)})

    return begin


def cursor_line(scene: Scene) -> str:
    return next(line for line in scene.lines if line.startswith("▌"))


LIMITED = RateLimitedError("Slow down.", retry_after_s=72.0)
TAIL = "runs before 19:36:42 are not fetched · enter fetch them"


async def pressed(scene: Scene, *keys: str, shows: str) -> None:
    """Presses keys that start what does not end, and waits for what they lead to."""
    for key in keys:
        await scene.pilot.press(f"{NO_KEY}{key}" if key.startswith("runs.") else key)
    await until(lambda: shows in scene.text, f"the screen shows {shows}", saw=lambda: scene.text)


async def test_the_last_line_fetches_what_is_older(begun: Staged, board: Lab) -> None:
    """Enter on it brings the runs in its place, and then nothing is said to be missing; new runs above leave it.

    What is missing is still said after a restart, before anything is asked of the service.
    """
    async with begun():
        pass
    async with begun(SMALL, synced=False) as scene:
        await scene.tick(minutes=5)
        assert "19:36:42" in scene.text
        await scene.sync()
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


async def test_a_date_before_what_is_held_is_fetched_since_then(begun: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query within what is held offers nothing; escape stops the fetching before anything else.

    An empty result says where it looked, and asks for more. A rate limit is waited for, and its end is said.
    """
    hanging: list[datetime | None] = []

    async def fetch_older(_: object, *, since: datetime | None = None, **__: object) -> None:
        hanging.append(since)
        await asyncio.Event().wait()

    monkeypatch.setattr("app.sync.backfill.Backfill.fetch_older", fetch_older)
    async with begun() as scene:
        await scene.press("slash", *"since:1h", "enter")
        assert "not fetched" not in scene.text
        await scene.press("escape", "slash", *"since:4h", "enter", "G")
        await pressed(scene, "enter", shows="so far · esc stop")

        assert hanging == [scene.clock() - timedelta(hours=4)]
        await scene.press("escape")
        assert TAIL in scene.text

        await scene.press("escape", "slash", *"nowhere", "enter")
        await scene.shows("Searched only the 20 runs that are here;", "No run matches here")
        await pressed(scene, "runs.older", shows="esc stop")
        assert "0 so far" in scene.text
        await scene.press("escape")
        assert "Press enter to ask the service" in " ".join(scene.text.split())
        assert "nowhere" in scene.text

        monkeypatch.setattr("app.sync.backfill.Backfill.fetch_older", AsyncMock(side_effect=LIMITED))
        await scene.press("escape", "G")
        await pressed(scene, "enter", shows="waiting until 22:01:12: rate limit · esc stop")
        await scene.press("escape")
        assert TAIL in scene.text


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


async def with_a_gap(scene: Scene, board: Lab, new: int = 50) -> None:
    """So many new runs since the last poll, which reads the newest 20 of them."""
    for number in range(new):
        board.put(f"run_new{number:03}", "completed" if number % 2 else "failed", created=601.0 + number)
    await scene.tick(minutes=new + 30)
    await scene.sync()


async def test_a_gap_is_a_line_between_its_neighbours(begun: Staged, board: Lab) -> None:
    """Enter on it fetches what is missing there, and then it is gone; the cursor is on the first of those runs.

    Where runs stand in another order than that of time there is none; oldest first has it in its place.
    """
    async with begun(SMALL) as scene:
        await with_a_gap(scene, board)
        found = []
        for column in ("branch", "started", "started", "started"):
            scene.table.post_message(RunTable.SortRequested(column))
            await scene.settle()
            found.append(len(scene.table.gaps))
        assert found == [0, 1, 1, 1]
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

        line = next(y for y, line in enumerate(scene.lines) if "are not fetched" in line and "before" not in line)
        await scene.pilot.click(offset=(30, line))
        await scene.settle()
        assert not scene.table.gaps
        assert scene.table.count >= 51 + HELD
