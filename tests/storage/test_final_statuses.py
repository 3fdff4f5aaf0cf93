"""Statuses that turn out to be final count as final in every query of the cache."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from storage.cache.cache import Cache
from storage.records import RunFilter, RunSort, WindowRequest
from tests.storage.conftest import NOON, make_run

MINUTE = timedelta(minutes=1)
TOOK = RunSort("took")


async def seen(cache: Cache, condition: RunFilter) -> list[str]:
    rows = await cache.rows(condition, TOOK, offset=0, limit=50)
    assert await cache.count(condition) == len(rows)
    request = WindowRequest(condition, TOOK, 0, 50)
    places = [(await cache.window(replace(request, cursor_id=row.run_id))).cursor_index for row in rows]
    assert places == list(range(len(rows)))
    return [row.run_id for row in rows]


@pytest.fixture
async def runs(cache: Cache) -> SimpleNamespace:
    """Twelve runs archived after a minute, one that took an hour, and an active one."""
    archived = [make_run(n, "archived", created_at=NOON, updated_at=NOON + MINUTE) for n in range(12)]
    done = make_run(50, "completed", created_at=NOON, updated_at=NOON + 60 * MINUTE)
    working = make_run(60, "working", created_at=NOON, updated_at=NOON)
    await cache.store_runs((*archived, done, working), asked_at=NOON + 60 * MINUTE)
    ids = [run.run_id for run in archived]
    return SimpleNamespace(archived=sorted(ids, reverse=True), done=done.run_id, working=working.run_id)


async def test_learned_statuses_update_cached_runs(cache: Cache, runs: SimpleNamespace) -> None:
    """Filters, numbers, order, rows and details agree; before that, a run with an unknown status counts as active."""
    assert await seen(cache, RunFilter()) == [runs.working, *runs.archived, runs.done]
    assert await seen(cache, RunFilter(ended=True)) == [runs.done]
    await cache.mark_final("archived")
    await cache.mark_final("archived")
    later = make_run(70, "archived", created_at=NOON, updated_at=NOON + 2 * MINUTE)
    await cache.store_runs((later,), asked_at=NOON + 61 * MINUTE)

    assert await seen(cache, RunFilter()) == [runs.working, runs.done, later.run_id, *runs.archived]
    assert await seen(cache, RunFilter(active=True)) == [runs.working]
    assert await seen(cache, RunFilter(ended=True)) == [runs.done, later.run_id, *runs.archived]
    rows = await cache.rows(RunFilter(), RunSort(), offset=0, limit=50)
    assert {row.run_id for row in rows if not row.is_final} == {runs.working}
    details = await cache.details([row.run_id for row in rows])
    assert {run_id for run_id, detail in details.items() if not detail.is_final} == {runs.working}
    assert [run.run_id for run in await cache.active_runs()] == [runs.working]
    # A change to this status ends the run.
    here = await cache.watermark()
    ended = make_run(60, "archived", created_at=NOON, updated_at=NOON + 62 * MINUTE)
    await cache.store_runs((ended,), asked_at=NOON + 63 * MINUTE)
    (change,) = (await cache.changes(here, since=NOON)).changes
    assert (change.run_id, change.new, change.is_final) == (runs.working, "archived", True)


async def test_some_statuses_are_final_by_their_name(cache: Cache) -> None:
    """Such statuses are final from the first run on, without a query."""
    await cache.store_runs((make_run(1, "Cancelled"), make_run(2, "archived")), asked_at=NOON)

    assert [run.run_id for run in await cache.active_runs()] == ["run_0002"]
    assert await cache.final_statuses() >= {"completed", "failed", "Cancelled"}
    assert await cache.unsettled_statuses() == ("archived",)
