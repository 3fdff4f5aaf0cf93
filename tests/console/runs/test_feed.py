"""The feed of the run table: what it does beyond a screen's life."""

from pathlib import Path
from typing import TYPE_CHECKING

from app.console.runs.feed import RunFeed
from app.console.runs.views import TableQuery
from storage.cache import Cache
from tests.console.scenes import SceneClock
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from widgets.filter.bar import Extent


async def test_a_reading_ends_although_its_table_has_gone(tmp_path: Path) -> None:
    """Closing the console behind a letter of a search takes the table away first."""
    begun: list[Coroutine[None, None, None]] = []
    told: list[Extent] = []
    clock = SceneClock()
    async with await Cache.open(tmp_path / "cache.sqlite3") as cache:
        feed = RunFeed(
            cache,
            RunTable(clock),
            clock,
            begun.append,
            wanted=TableQuery(),
            tell=told.append,
            count=lambda counts, statuses: None,
            failed=lambda error: None,
        )
        feed.changed()
        for reading in begun:
            await reading

    assert len(told) == 1
