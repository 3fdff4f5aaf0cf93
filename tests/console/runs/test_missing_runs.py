"""Missing runs are reported, and fetched on request; a gap has its own line in the list."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.console.conftest import SMALL, WIDE, Scene, Staged
from tests.console.quiet import strips
from tests.console.scenes import TOKEN_VARIABLE, settings_for
from tests.lab import Lab
from tests.waiting import until
from widgets.runs.table import RunTable, chosen_order

HELD = 20
"""How many runs the first refresh of a `begun` console reads."""


@pytest.fixture
def begun(staged: Staged, board: Lab, tmp_path: Path) -> Staged:
    """Starts a console whose first refresh reads the newest 20 of 60 runs."""

    def begin(size: tuple[int, int] = WIDE, *, synced: bool = True) -> AbstractAsyncContextManager[Scene]:
        os.environ[TOKEN_VARIABLE] = "token-of-the-scene"  # The engine that was opened first took the lease.
        profile = settings_for(board.base_url, tmp_path).profile()
        poll = replace(profile.poll, page_size=HELD, first_runs=HELD)
        return staged(size, synced=synced, changed={"profiles": (replace(profile, poll=poll),)})

    return begin


def cursor_line(scene: Scene) -> str:
    return next(line for line in scene.lines if line.startswith("▌"))


TAIL = "runs before 19:36:42 are not fetched · enter fetch them"


async def test_the_last_line_fetches_older_runs(begun: Staged, board: Lab) -> None:
    """Enter on the last line fetches older runs until none is missing, and new runs above do not disturb it.

    Missing runs are still reported after a restart, before the service is asked.
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
        assert scene.table.window.runs == HELD + 1

        await scene.press("enter")

        assert scene.table.window.runs == 61
        assert TAIL not in scene.text
        assert scene.table.row is not None
        assert scene.table.row.run_id.startswith("run_01JX0020")
        await scene.press("G")
        assert scene.table.row.run_id.startswith("run_01JX0059")


async def test_runs_before_the_cached_period_are_fetched(begun: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query inside the cached period offers nothing to fetch, and escape stops fetching.

    An empty result says where it searched.
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
        await scene.pilot.press("enter")
        await until(lambda: "so far · esc stop" in scene.text, "the fetching is shown", saw=lambda: scene.text)
        assert hanging == [scene.clock() - timedelta(hours=4)]
        await scene.press("escape")
        assert TAIL in scene.text

        await scene.press("escape", "slash", *"nowhere", "enter")
        await scene.shows("Searched only the 20 runs that are here;", "No run matches here")


async def test_an_unconfirmed_status_is_not_shown_as_live(begun: Staged) -> None:
    """An old status is dimmed, and the detail says since when; runs that a poll lists again are live."""
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
    """The colour of the status under the cursor."""
    strip = next(strip for strip in strips(scene.app) if strip and strip[0].text.startswith("▌"))
    return next(segment.style.color for segment in strip if "completed" in segment.text and segment.style)


async def test_a_gap_is_a_line_between_its_neighbours(begun: Staged, board: Lab) -> None:
    """Enter on a gap fetches its runs, and the cursor moves to the first of them.

    Gaps have no line when the list is not sorted by time; oldest first shows them too.
    """
    async with begun(SMALL) as scene:
        for number in range(50):
            board.put(f"run_new{number:03}", created=601.0 + number)
        await scene.tick(minutes=80)
        await scene.sync()
        found = []
        for column in ("branch", "started", "started", "started"):
            scene.table.post_message(RunTable.SortRequested(chosen_order(column, scene.table.sort)))
            await scene.settle()
            found.append(len(scene.table.window.gaps))
        assert found == [0, 1, 1, 1]
        assert (scene.table.window.runs, scene.table.total) == (2 * HELD, 2 * HELD + 2)

        await scene.press("g", *["down"] * HELD)
        assert "runs from" in cursor_line(scene)
        assert "are not fetched · enter fetch them" in cursor_line(scene)
        assert "Not here: runs from" in scene.text
        await scene.press("enter")

        assert not scene.table.window.gaps
        assert scene.table.window.runs >= 50 + HELD
        assert scene.table.row is not None
        assert scene.table.row.run_id == "run_new029"
        await scene.press("G")
        assert "runs before" in cursor_line(scene)
