"""Reading the rows of the runs table, without a screen."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.console.runs.table_loader import TableLoader
from app.console.runs.views import TableQuery
from storage.errors import DiskFailedError
from storage.records import RunFilter
from tests.console.conftest import Disk
from tests.console.runs.conftest import Desk, a_run
from widgets.runs.table import RunTable

if TYPE_CHECKING:
    from widgets.filter.extent import Extent


class Held:
    """A loader, its table, and the numbers that it told."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.query = TableQuery()
        self.extents: list[Extent] = []
        self.table = RunTable(desk.clock)
        self.loader = TableLoader(desk.context, self.table, lambda: self.query, show_extent=self.extents.append)


@pytest.fixture
async def held(desk: Desk) -> Held:
    return Held(desk)


async def test_the_rows_come_with_their_numbers(held: Held) -> None:
    """A reading ends although its table is not on a screen any longer: closing the console takes it away first."""
    held.loader.runs_changed()
    await held.desk.work()

    assert held.table.total == 4
    assert [(extent.matching, extent.held) for extent in held.extents] == [(4, 4)]


async def test_a_reader_who_moves_gets_rows_and_no_numbers(held: Held) -> None:
    """The numbers change with the runs or with the query only."""
    held.loader.look()
    await held.desk.work()

    assert held.table.total == 4
    assert held.extents == []


async def test_many_changes_are_read_once_more(held: Held) -> None:
    """However often it was asked while it read."""
    for _ in range(5):
        held.loader.runs_changed()
    assert len(held.desk.started) == 1
    await held.desk.store(a_run(5))
    await held.desk.work()

    assert [extent.matching for extent in held.extents] == [5]


@pytest.mark.parametrize(("line", "matching"), [("branch:main", 2), ("agent", 1), ("-branch:main", 2)])
async def test_the_query_counts_as_it_is_when_the_rows_are_read(held: Held, line: str, matching: int) -> None:
    """The numbers say how many match, of how many."""
    held.loader.runs_changed()
    held.query = TableQuery(line=line)
    await held.desk.work()

    assert held.table.total == matching
    assert (held.extents[-1].matching, held.extents[-1].held) == (matching, 4)


async def test_what_could_not_be_read_is_still_owed(held: Held, disk: Disk) -> None:
    """The reader's next move brings the numbers as well, which a move alone does not read."""
    disk.fails = True
    held.loader.runs_changed()
    with pytest.raises(DiskFailedError):
        await held.desk.work()
    disk.fails = False
    held.loader.look()
    await held.desk.work()

    assert [(extent.matching, extent.held) for extent in held.extents] == [(4, 4)]


async def test_what_is_asked_during_a_failing_reading_is_read_by_another_task(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is reported at once; the rows that were asked for before it still come."""
    cache = held.desk.cache

    async def failing(_: object) -> None:
        monkeypatch.undo()
        held.loader.runs_changed()
        raise DiskFailedError("disk full", path=Path("cache.sqlite3"))

    monkeypatch.setattr(cache, "window", failing)
    held.loader.runs_changed()
    with pytest.raises(DiskFailedError):
        await held.desk.work()
    assert len(held.desk.started) == 1
    await held.desk.work()

    assert held.table.total == 4


async def test_nothing_is_read_before_the_engine_is_open(held: Held) -> None:
    """The first rows stay on show until then."""
    held.desk.session.engine = None
    held.loader.runs_changed()
    held.loader.query_changed(TableQuery(line="is:active"))
    await held.desk.work()

    assert held.extents == []


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (RunFilter(), False),
        (RunFilter(branches=("main",), statuses=("failed",)), False),
        (RunFilter(search="main"), True),
        (RunFilter(branches=("agent/*",)), True),
        (RunFilter(not_repositories=("acme/api",)), True),
    ],
)
def test_words_and_patterns_need_every_run(condition: RunFilter, *, expected: bool) -> None:
    """An index leads to whole values only."""
    assert condition.is_scan is expected
