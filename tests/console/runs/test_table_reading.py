"""How the table of runs is read."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.engine.events import CacheChangedElsewhere
from storage.cache.cache import Cache
from storage.errors import DiskFailedError
from storage.records import RunWindow, WindowRequest
from tests.console.conftest import Staged


async def test_many_changes_are_read_at_once_and_a_failed_reading_is_made_up_for(
    staged: Staged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst costs one or two readings; after a failure the rows stay, and the next change reads what was missed."""
    async with staged() as scene:
        read, window, is_broken = list[WindowRequest](), Cache.window, False

        async def watched(cache: Cache, request: WindowRequest) -> RunWindow:
            read.append(request)
            if is_broken:
                raise DiskFailedError("The disk failed.", path=Path("cache.sqlite3"))
            return await window(cache, request)

        monkeypatch.setattr(Cache, "window", watched)
        for _ in range(20):
            scene.engine.events.publish(CacheChangedElsewhere())
        await scene.settle()
        assert 1 <= len(read) <= 2

        is_broken = True
        total, row = scene.table.count, scene.table.row
        assert row is not None
        first = (await scene.engine.cache.details([row.run_id]))[row.run_id].run
        await scene.engine.cache.store_runs([replace(first, run_id="run_missed")], asked_at=scene.clock())
        await scene.ring()
        assert scene.table.count == total
        is_broken = False
        await scene.ring()
        assert scene.table.count == total + 1
