"""Several caches as one list: each of its windows is what sorting all runs by hand finds."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from storage.cache.cache import Cache
from storage.cache.merged import MergedCaches
from storage.records import Repository, Run, RunFilter, RunSort, WindowRequest
from storage.records.run import whose
from tests.storage.conftest import NOON


def run(number: int, name: str = "run") -> Run:
    at = NOON + timedelta(minutes=number)
    status = ("failed", "completed", "working", "retired")[number % 4]
    return Run(
        f"{name}_{number:03}", status, f"agent/{number % 5}", Repository.parse(f"acme/{number % 3}"), at, at, "{}"
    )


Two = dict[str, Cache]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    """Two caches with interleaved runs, ten of which are the same run of the same service."""
    chance = random.Random(7)
    async with AsyncExitStack() as stack:
        caches = {}
        for name in ("prod", "lab"):
            folder = tmp_path / name
            folder.mkdir()
            caches[name] = await stack.enter_async_context(
                await Cache.open(folder / "cache.sqlite3", clock=lambda: NOON)
            )
            own = [run(number, name) for number in range(90) if chance.random() < 0.5]
            await caches[name].store_runs([*own, *(run(200 + number) for number in range(10))], NOON)
        yield caches


@pytest.mark.parametrize(("number", "column"), enumerate(("started", "repository", "branch", "took")))
async def test_each_window_is_a_part_of_one_order(two: Two, number: int, column: str) -> None:
    """From both ends and in the middle; each cache's runs stand in the order that its own list has."""
    merged, filters = MergedCaches(two), ({}, {"statuses": ("failed",)}, {"active": True}, {"search": "lab"})
    for descending in (True, False):
        condition, sort = RunFilter(**filters[number % 4]), RunSort(column, descending)
        found = await merged.window(WindowRequest(condition, sort, 0, 1_000))
        rows = [row.run_id for row in found.rows]
        if column in {"repository", "branch"}:
            names = [getattr(row, "branch_name" if column == "branch" else "repository") for row in found.rows]
            assert names == sorted(names, reverse=descending)
        assert len(rows) == len(set(rows)) == await merged.count(condition)
        for name, cache in two.items():
            own = await cache.rows(condition, sort, offset=0, limit=1_000)
            assert [whose(row)[1] for row in rows if whose(row)[0] == name] == [each.run_id for each in own]
        for offset in range(0, len(rows), 19):
            window = await merged.window(WindowRequest(condition, sort, offset, 10))
            assert window.total == len(rows)
            assert [row.run_id for row in window.rows] == rows[window.offset : window.offset + 10]
            assert window.offset == max(0, min(offset, len(rows) - 10))
