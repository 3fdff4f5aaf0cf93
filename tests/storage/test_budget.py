"""The request budget in the cache's file: one for all processes."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.api.budget import Budget, Priority
from app.api.errors import RateLimitedError
from storage.cache.cache import Cache
from storage.records.activity import BudgetState
from tests.storage.conftest import race
from tests.waiting import present

COUNT = """
from msgspec.structs import replace
async with await Cache.open(Path(path)) as cache:
    await start()
    for _ in range(20):
        await cache.change_budget(lambda state: replace(state, failures=state.failures + 1))
    print("done")
"""


async def test_what_one_process_learned_every_other_knows(cache: Cache, cache_path: Path) -> None:
    """A pause outlives the process that was told to wait; where nothing changes, nobody is woken."""
    async with await Cache.open(cache_path) as other:
        await cache.change_budget(lambda state: replace(state, paused_at_s=1.0, paused_until_s=61.5))
        assert await other.budget() == BudgetState(paused_at_s=1.0, paused_until_s=61.5)
        before = await other.data_version()
        await cache.change_budget(lambda state: state)
        assert await other.data_version() == before


def test_processes_that_change_it_at_once_lose_nothing(cache_path: Path) -> None:
    """Each change is one step."""
    assert race(COUNT, 4, str(cache_path)) == ["done"] * 4

    async def held() -> float:
        async with await Cache.open(cache_path) as cache:
            return (await cache.budget()).failures

    assert asyncio.run(held()) == 80


async def test_a_cache_that_cannot_be_used_leaves_each_process_its_own(cache_path: Path) -> None:
    """A write to the service must not fail because of our own files."""
    cache = await Cache.open(cache_path)
    budget, refused = Budget(cache), RateLimitedError("slow down", retry_after_s=60.0)
    await cache.close()
    with pytest.raises(RateLimitedError):
        async with budget.turn(Priority.WRITE):
            raise refused

    wait = present(await budget.wait(Priority.ASKED))
    assert wait.reason == "rate_limit"
