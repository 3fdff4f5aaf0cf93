"""Older runs, fetched because a person asked."""

import asyncio

import pytest

from tests.sync.conftest import Desk, ended, held
from tests.sync.peer import MINUTE, Peer
from tests.waiting import until


async def test_older_runs_are_fetched_on_demand(history: Peer, desk: Desk) -> None:
    """Asking once brings about a thousand more; since a time, all of them since then; a run, as far as that run."""
    ended(history, 3_000, "old", after=1_000)
    async with desk.begun(page_size=100) as engine:
        await engine.backfill.run(days=0.1)
        before = await held(engine)
        await engine.backfill.fetch_older()
        assert before + 900 <= await held(engine) <= before + 2_000

        since = history.now - 2_000 * MINUTE
        await engine.backfill.fetch_older(since=since)
        complete_since = (await engine.cache.coverage()).complete_since
        assert complete_since is not None
        assert complete_since <= since

        assert await engine.cache.detail("old_02500") is None
        await engine.backfill.fetch_older(run_id="old_02500")
        assert await engine.cache.detail("old_02500") is not None
        await engine.backfill.fetch_older(run_id="there is no such run")
        assert (await engine.cache.coverage()).whole


async def test_every_process_sees_how_far_it_is_and_can_pause_it(history: Peer, desk: Desk) -> None:
    """One that does not fetch reads the progress in the cache; its pause is heard in the middle of a filling."""
    ended(history, 3_000, "old", after=1_000)
    history.latency_s = 0.1
    async with desk.begun() as one, desk.engine() as other:
        filling = asyncio.create_task(one.backfill.run())
        await until(lambda: one.backfill.progress.done_runs > 0)
        told = None
        while told is None or told.phase != "running":
            told = await other.cache.backfill_progress(other.clock())
        await other.backfill.pause()

        assert told.estimated_runs is not None
        assert await filling is False
        told = await other.cache.backfill_progress(other.clock())
        assert told is not None
        assert told.phase == "paused"
        assert await other.cache.backfill_progress(other.clock() + MINUTE) is None


async def test_fetching_older_runs_can_be_stopped(history: Peer, desk: Desk) -> None:
    """What came is kept, and nothing more is asked for."""
    history.latency_s = 0.02
    async with desk.begun() as engine:
        fetching = asyncio.create_task(engine.backfill.fetch_older(since=history.now - 2_000 * MINUTE))
        await until(lambda: engine.backfill.progress.done_runs >= 100)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        count, asked = await held(engine), len(history.log)
        await asyncio.sleep(0.2)

        assert 100 < count < 1_000
        assert len(history.log) - asked <= 8
        assert engine.backfill.progress.phase == "idle"
        await engine.backfill.fetch_older(since=history.now - 2_000 * MINUTE)
        assert await held(engine) == 1_000
