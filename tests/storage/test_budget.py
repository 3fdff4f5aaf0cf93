"""The request budget in the cache's file: one for all processes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from storage.cache import Cache, budget
from storage.cache.budget import SharedBudget
from storage.records.service_traits import BudgetState

COUNT = """
from dataclasses import replace
from storage.cache.budget import SharedBudget
async with await Cache.open(Path(path)) as cache:
    await start()
    for _ in range(20):
        await SharedBudget(cache).change(lambda state: replace(state, failures=state.failures + 1))
    print("done")
"""


async def test_what_one_process_learned_a_fresh_one_knows(cache: Cache, cache_path: Path) -> None:
    """A pause outlives the process that was told to wait."""
    await SharedBudget(cache).change(lambda state: replace(state, paused_at_s=1.0, paused_until_s=61.5))
    async with await Cache.open(cache_path) as other:
        assert await SharedBudget(other).current() == BudgetState(paused_at_s=1.0, paused_until_s=61.5)


async def test_a_process_that_runs_on_hears_of_it_within_a_moment(
    cache: Cache, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read counts for half a second, and no longer."""
    monkeypatch.setattr(budget, "FRESH_S", 0.05)
    shared = SharedBudget(cache)
    assert (await shared.current()).refusals == 0
    async with await Cache.open(cache_path) as other:
        await SharedBudget(other).change(lambda state: replace(state, refusals=2.0))
    async with asyncio.timeout(300):
        while not (await shared.current()).refusals:
            await asyncio.sleep(0.01)


async def test_nothing_is_written_where_nothing_changes(cache: Cache, cache_path: Path) -> None:
    """Other processes are not woken for it."""
    async with await Cache.open(cache_path) as other:
        before = await other.data_version()
        await SharedBudget(cache).change(lambda state: state)
        await SharedBudget(cache).current()

        assert await other.data_version() == before


def test_processes_that_change_it_at_once_lose_nothing(race: Callable[..., list[str]], cache_path: Path) -> None:
    """Each change is one step."""
    assert race(COUNT, 4, str(cache_path)) == ["done"] * 4

    async def held() -> float:
        async with await Cache.open(cache_path) as cache:
            return (await SharedBudget(cache).current()).failures

    assert asyncio.run(held()) == 80


async def test_a_cache_that_cannot_be_used_leaves_each_process_its_own(cache_path: Path) -> None:
    """A write to the service must not fail because of our own files."""
    cache = await Cache.open(cache_path)
    shared = SharedBudget(cache)
    await cache.close()

    assert await shared.current() == BudgetState()
    assert (await shared.change(lambda state: replace(state, refusals=1.0)))[1].refusals == 1.0
    assert (await shared.current()).refusals == 1.0
