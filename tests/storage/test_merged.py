"""Several caches as one list: each window equals that of sorting all runs."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from storage.cache.cache import Cache
from storage.cache.merged import MergedCaches
from storage.records import Repository, Run, RunFilter, RunSort, WindowRequest
from storage.records.run import split_row_id
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
    """Windows are at both ends and in the middle; each cache's runs keep the order of its own list."""
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
            assert [split_row_id(row)[1] for row in rows if split_row_id(row)[0] == name] == [
                each.run_id for each in own
            ]
        for offset in range(0, len(rows), 19):
            window = await merged.window(WindowRequest(condition, sort, offset, 10))
            assert window.total == len(rows)
            assert [row.run_id for row in window.rows] == rows[window.offset : window.offset + 10]
            assert window.offset == max(0, min(offset, len(rows) - 10))


NEWEST_FIRST = RunSort()


async def test_anchor_and_cursor_stay_on_their_runs(two: Two) -> None:
    """When a run arrives above in the other cache, the same rows are one further down."""
    found = await MergedCaches(two).window(WindowRequest(RunFilter(), NEWEST_FIRST, 0, 1_000))
    times, rows = [row.created_at for row in found.rows], [row.run_id for row in found.rows]
    request = WindowRequest(RunFilter(), NEWEST_FIRST, 20, 5, rows[20], 20, rows[60])
    before = await MergedCaches(two).window(request)
    await two["lab"].store_runs([run(500, "lab")], NOON)
    after = await MergedCaches(two).window(request)

    assert times == sorted(times, key=str, reverse=True)
    assert [row.profile for row in found.rows[:6]] == ["prod", "lab"] * 3
    assert {row.profile for row in found.rows} == set(two)
    assert (before.shift, before.offset, before.cursor_index) == (0, 20, 60)
    assert (after.shift, after.offset, after.cursor_index) == (1, 21, 61)
    assert after.rows == before.rows
    # A row that is filtered, not cached, or of a removed profile has no position.
    for row_id in (next(row for row in rows if "prod_" in row), "prod\x1fgone", "gone\x1frun_200", "run_200"):
        request = WindowRequest(RunFilter(search="lab_"), NEWEST_FIRST, 0, 5, None, 0, row_id)
        assert (await MergedCaches(two).window(request)).cursor_index is None
