"""Reading the recent past again: what changed or went away out of sight of the polls."""

import pytest

from app.config import HistorySettings
from app.sync.look_up import WALK_PAGES
from app.sync.reread import Rereader
from storage.records import RunFilter
from tests.sync.conftest import Desk, ended
from tests.sync.peer import MINUTE, Peer

PAGE = 20


@pytest.fixture
def history(peer: Peer) -> Peer:
    """Runs of 200 minutes, each of which took some seconds."""
    ended(peer, 200)
    return peer


@pytest.mark.parametrize("date_filter", ["created", "updated", "ignored"])
@pytest.mark.parametrize("paging", ["key", "offset"])
async def test_a_pass_finds_late_changes_and_deletions(
    history: Peer, desk: Desk, date_filter: str, paging: str
) -> None:
    """However the service filters dates and counts its pages, and at the cost of its pages."""
    history.date_filter, history.paging = date_filter, paging  # type: ignore[assignment]
    async with desk.engine(page_size=PAGE) as engine:
        await engine.runs.refresh()
        gone = [f"run_{n:05}" for n in range(3, 200, 25)]
        for run_id in gone:
            del history.runs[run_id]
        history.move("run_00150", "failed")
        await engine.runs.service_traits()
        history.asked()
        await engine.reread.whole_pass()

        details = await engine.cache.details([f"run_{n:05}" for n in range(200)])
        assert {run_id for run_id, detail in details.items() if detail.presence != "current"} == set(gone)
        assert details["run_00150"].run.status == "failed"
        # Where no date finds a run, the list is read for it, twice: runs may move while it is read.
        look_up = 2 * WALK_PAGES if date_filter == "ignored" else 11
        assert history.asked() < 14 + 8 * look_up


async def test_a_large_deletion_is_found_in_one_pass(history: Peer, desk: Desk) -> None:
    """More runs than are looked up at a time: the page is read again."""
    async with desk.engine(page_size=PAGE) as engine:
        await engine.runs.refresh()
        for n in range(40, 120):
            del history.runs[f"run_{n:05}"]
        await engine.reread.whole_pass()

        details = await engine.cache.details([f"run_{n:05}" for n in range(200)])
        assert sum(detail.presence == "lost" for detail in details.values()) == 80


async def test_a_pass_goes_on_in_the_next_process(history: Peer, desk: Desk) -> None:
    """Its place is kept: what was read is not read again."""
    async with desk.engine(page_size=PAGE) as engine:
        await engine.runs.refresh()
        for _ in range(4):
            assert not await engine.reread.step()
        place = await engine.cache.reread()
    async with desk.engine(page_size=PAGE) as engine:
        history.asked()
        await engine.reread.whole_pass()

        assert place is not None
        assert place.down_to is not None
        assert place.down_to < history.now - 50 * MINUTE
        assert history.asked() <= 10


async def test_a_pass_ends_at_its_age(history: Peer, desk: Desk) -> None:
    """An older run stays as it was seen last."""
    async with desk.engine(page_size=PAGE) as engine:
        await engine.runs.refresh()
        history.move("run_00020", "failed")
        history.move("run_00150", "failed")
        reread = Rereader(engine.runs, engine.client, HistorySettings(reread_days=1 / 24))
        await reread.whole_pass()

        assert await engine.cache.count(RunFilter(statuses=("failed",))) == 1


async def test_nothing_is_read_again_before_its_time(history: Peer, desk: Desk) -> None:
    """A console that has just begun asks for what is new first; without an age nothing is ever read again."""
    async with desk.engine(page_size=PAGE) as engine:
        await engine.runs.refresh()
        history.asked()

        assert 50 < await engine.reread.work() <= 60
        assert await Rereader(engine.runs, engine.client, HistorySettings(reread_days=0)).work() == 60
        assert history.asked() == 0


async def test_what_was_dropped_to_make_room_is_not_read_again(history: Peer, desk: Desk) -> None:
    """Nor is it said to be held: neither by a pass that began before, nor by the next one."""
    async with desk.engine(page_size=PAGE) as engine:
        await engine.runs.refresh()
        await engine.reread.whole_pass()
        whole = await engine.cache.coverage()
        await engine.cache.drop_oldest(history.now - 100 * MINUTE, ())
        cut = await engine.cache.coverage()
        await engine.reread.whole_pass()
        await engine.reread.whole_pass()

        held = await engine.cache.count(RunFilter())
        assert held < 110
        assert whole.reread is not None
        for claim in (cut.reread, (await engine.cache.coverage()).reread):
            assert claim is not None
            assert await engine.cache.count(RunFilter(since=claim.since)) == sum(
                run.created >= claim.since for run in history.runs.values()
            )
