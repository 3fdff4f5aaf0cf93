"""How the table of runs reads the cache."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.engine.events import FilesChangedElsewhere, RunsChanged
from app.runs import screen_loader
from storage.cache.cache import Cache
from storage.errors import DiskFailedError
from storage.records import RunChanges, RunWindow, WindowRequest
from tests.console.conftest import Staged


async def test_many_changes_are_read_at_once_and_failed_reads_repeated(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst of changes takes one or two reads; after a failure the rows stay, and the next change catches up."""
    async with staged() as scene:
        read, window, is_broken = list[WindowRequest](), Cache.window, False

        async def watched(cache: Cache, request: WindowRequest) -> RunWindow:
            read.append(request)
            if is_broken:
                raise DiskFailedError("The disk failed.", path=Path("cache.sqlite3"))
            return await window(cache, request)

        monkeypatch.setattr(Cache, "window", watched)
        for _ in range(20):
            scene.engine.events.publish(FilesChangedElsewhere())
        await scene.settle()
        assert 1 <= len(read) <= 2

        is_broken = True
        total, row = scene.table.window.runs, scene.table.row
        assert row is not None
        first = (await scene.engine.cache.details([row.run_id]))[row.run_id].run
        await scene.engine.cache.store_runs([replace(first, run_id="run_missed")], asked_at=scene.clock())
        await scene.ring()
        assert scene.table.window.runs == total
        is_broken = False
        await scene.ring()
        assert scene.table.window.runs == total + 1


async def test_new_runs_are_read_once_a_tick(staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page is shown at once; while more follow, the rows and the run next to them are read at each tick."""
    async with staged() as scene:
        read, window = list[WindowRequest](), Cache.window

        async def watched(cache: Cache, request: WindowRequest) -> RunWindow:
            read.append(request)
            return await window(cache, request)

        monkeypatch.setattr(Cache, "window", watched)
        monkeypatch.setattr(screen_loader, "GROWS_S", 3600.0)
        for number in range(20):
            scene.engine.events.publish(RunsChanged(RunChanges(new=(f"run_{number}",))))
            await scene.settle()
        assert len(read) == 1

        await scene.tick()
        assert len(read) == 2
