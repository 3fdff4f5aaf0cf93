"""Keeping the cached runs true, against a peer whose runs the test moves."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from app.api.client import Client
from app.api.errors import RateLimitedError
from app.config.token import Token
from app.events import Event, LinkChanged, RunsChanged
from app.sync.listing import Listing
from app.sync.runs import RunSync
from storage.cache import Cache
from storage.records import Run, RunChanges, RunFilter
from tests.run_board import START, Board, served


@dataclass
class Bench:
    """A board, a cache, and the sync between them."""

    board: Board
    cache: Cache
    client: Client
    sync: RunSync
    events: list[Event] = field(default_factory=list)

    async def status(self, run_id: str) -> str | None:
        detail = await self.cache.detail(run_id)
        return None if detail is None else detail.run.status

    async def presence(self, run_id: str) -> str | None:
        detail = await self.cache.detail(run_id)
        return None if detail is None else detail.presence

    async def filled(self, end: int, *, first: int = 0) -> RunChanges:
        """Completed runs of these numbers appear, one a minute, and are refreshed."""
        for n in range(first, end):
            self.board.put(f"run_{n:02}", "completed", created=n)
        return await self.sync.refresh()

    def asked(self) -> int:
        """How many list requests came since this was last asked."""
        count = len(self.board.list_queries)
        self.board.requests.clear()
        return count


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with served(Board()) as board:
        events: list[Event] = []
        clock = partial(START.__add__, timedelta(days=1))
        async with await Cache.open(tmp_path / "cache.sqlite3", clock=clock) as cache:
            client = Client(board.base_url, Token("test-token"), deadline_s=60)
            sync = RunSync(client, cache, events.append, clock=clock, page_size=5, first_runs=10)
            yield Bench(board, cache, client, sync, events)
            await client.aclose()


async def test_the_first_refresh_fills_the_cache_and_says_how_far_it_reached(bench: Bench) -> None:
    """With more history than the first refresh wants, the newest are held; what the oldest few say may be odd."""
    await bench.filled(30)

    assert await bench.cache.count(RunFilter()) == 10
    coverage = await bench.cache.coverage()
    assert not coverage.whole
    assert coverage.complete_since is not None
    assert START + timedelta(minutes=20) <= coverage.complete_since < START + timedelta(minutes=23)


async def test_a_short_history_is_known_to_be_whole(bench: Bench) -> None:
    """When the list ends, nothing older exists, and the screen may say so."""
    await bench.filled(7)

    assert (await bench.cache.coverage()).whole


@pytest.mark.parametrize(("newest", "new", "is_joined"), [(90, 20, False), (42, 12, True)])
async def test_new_runs_are_fetched_until_known_ones_are_met_or_the_head_is_full(
    bench: Bench, newest: int, new: int, *, is_joined: bool
) -> None:
    """Three known and unchanged ones in a row join; beyond twenty runs a gap is known, and the sweeps do not wait."""
    await bench.filled(30)
    before = await bench.cache.coverage()
    bench.asked()
    changes = await bench.filled(newest, first=30)
    coverage = await bench.cache.coverage()
    newer = coverage.ranges[0]

    assert len(changes.new) == new
    assert bench.asked() == 4 + 2
    assert newer.end is not None
    if is_joined:
        assert len(coverage.ranges) == 1
        assert coverage.complete_since == before.complete_since
        assert newer.end > START + timedelta(minutes=38)
    else:
        assert coverage.ranges[1] == before.ranges[0]
        assert coverage.gaps[0].after == before.ranges[0].end


async def test_an_old_run_that_came_alive_again_is_seen(bench: Bench) -> None:
    """A continued run keeps its creation date far down the list; the sweep by status finds it."""
    await bench.filled(30)
    bench.board.put("run_21", "working", created=21, updated=60)
    changes = await bench.sync.refresh()

    assert [(t.run_id, t.old, t.new) for t in changes.transitions] == [("run_21", "completed", "working")]
    assert any(isinstance(event, RunsChanged) and event.changes.transitions for event in bench.events)


async def test_a_run_is_unconfirmed_while_the_look_up_fails(bench: Bench) -> None:
    """Between 'not shown' and 'looked up' nothing is guessed."""
    bench.board.put("run_a", "working", created=0)
    await bench.filled(30, first=1)
    await bench.sync.refresh()
    del bench.board.runs["run_a"]
    bench.board.requests.clear()
    bench.board.fail_from = 3  # The head and two sweeps are answered, the look-up is not.
    with pytest.raises(RateLimitedError):
        await bench.sync.refresh()

    assert await bench.presence("run_a") == "unconfirmed"


async def test_a_service_that_ignores_the_status_filter_does_not_cost_its_history(bench: Bench) -> None:
    """The sweep notices the first page of something else and stops; the active run is still looked up."""
    bench.board.ignore_status = True
    bench.board.put("run_old", "working", created=0)
    await bench.sync.refresh()
    await bench.filled(100, first=1)
    bench.board.put("run_old", "completed", created=0, updated=200)
    bench.asked()
    await bench.sync.refresh()

    assert bench.asked() <= 4
    assert await bench.status("run_old") == "completed"


async def test_a_failed_refresh_keeps_the_rows_and_tells_the_link(bench: Bench) -> None:
    """A 429 half-way loses nothing that came before it, and the coverage does not claim the gap."""
    for n in range(30):
        bench.board.put(f"run_{n:02}", "completed", created=n)
    bench.board.fail_from = 1
    with pytest.raises(RateLimitedError):
        await bench.sync.refresh()

    assert await bench.cache.count(RunFilter()) == 5
    found = (await bench.cache.coverage()).complete_since
    assert found is None or found > START + timedelta(minutes=25)
    link = [event.state for event in bench.events if isinstance(event, LinkChanged)][-1]
    assert (link.subject, link.is_failing, link.error_kind) == ("runs", True, "rate_limited")


async def test_a_link_that_recovers_is_told(bench: Bench) -> None:
    """After a success the failure is over, and its count starts again."""
    bench.board.fail_from = 0
    with pytest.raises(RateLimitedError):
        await bench.sync.refresh()
    bench.board.fail_from = None
    await bench.sync.refresh()

    link = [event.state for event in bench.events if isinstance(event, LinkChanged)][-1]
    assert (link.is_failing, link.failures) == (False, 0)
    assert link.last_ok_at is not None


async def test_unknown_statuses_are_kept_and_swept(bench: Bench) -> None:
    """An unnamed status counts as active: it is kept as received and asked for."""
    bench.board.put("run_a", "thinking very hard", created=0)
    await bench.sync.refresh()
    await bench.sync.refresh()

    assert await bench.status("run_a") == "thinking very hard"
    assert "thinking very hard" in {query.get("status") for query in bench.board.list_queries}


async def _listed(bench: Bench, condition: RunFilter, limit: int | None) -> list[Run]:
    return [run async for page in Listing(bench.sync).pages(condition, limit=limit) for run in page.runs]


async def test_listing_stops_at_its_limit(bench: Bench) -> None:
    """The newest three cost one request, whatever the history."""
    for n in range(30):
        bench.board.put(f"run_{n:02}", "completed", created=n)
    listed = await _listed(bench, RunFilter(), 3)

    assert [run.run_id for run in listed] == ["run_29", "run_28", "run_27"]
    assert bench.asked() == 1


async def test_a_listing_without_a_filter_tells_the_cache_what_is_complete(bench: Bench) -> None:
    """What `runs list` walked through, from the newest down, is held completely afterwards."""
    for n in range(12):
        bench.board.put(f"run_{n:02}", "completed", created=n)
    await _listed(bench, RunFilter(), 5)
    partly = await bench.cache.coverage()
    await _listed(bench, RunFilter(), None)

    assert not partly.whole
    assert partly.complete_since is not None
    assert (await bench.cache.coverage()).whole


async def test_filtering_here_reads_whole_pages(bench: Bench) -> None:
    """One match among many runs costs pages, not a request a run."""
    for n in range(20):
        bench.board.put(f"run_{n:02}", "completed", created=n, branch_name="rare" if n == 0 else "main")
    listed = await _listed(bench, RunFilter(search="rare"), 1)

    assert [run.run_id for run in listed] == ["run_00"]
    assert bench.asked() == 4
