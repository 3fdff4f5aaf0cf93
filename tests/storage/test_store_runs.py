"""Storing runs: what counts as a change, and which answer may replace another."""

import asyncio
from datetime import datetime, timedelta

import pytest

from storage.cache.cache import Cache
from storage.records import RunChanges, RunDetail, RunFilter, RunSort, StatusTransition
from tests.storage.conftest import NOON, make_run
from tests.waiting import present

SECOND = timedelta(seconds=1)


async def held(cache: Cache) -> RunDetail:
    """The first run in the cache."""
    return present(await cache.detail("run_0001"))


async def test_transitions_carry_the_services_own_time(cache: Cache) -> None:
    """A transition has the time `updated_at`, whenever it was seen; the detail lists all of them."""
    await cache.store_runs([make_run(1, "queued")], asked_at=NOON)

    later = make_run(1, "working", updated_at=NOON + SECOND)
    changes = await cache.store_runs([later], asked_at=NOON + 60 * SECOND)

    moved = StatusTransition("run_0001", "queued", "working", NOON + SECOND)
    assert changes == RunChanges(transitions=(moved,))
    detail = await held(cache)
    assert detail.run == later
    assert detail.transitions == (StatusTransition("run_0001", None, "queued", NOON), moved)
    assert await cache.details(["run_0001"] * 501) == {"run_0001": detail}
    assert (detail.first_seen_at, detail.last_seen_at) == (NOON, NOON + 60 * SECOND)


@pytest.mark.parametrize("updated_at", [NOON - SECOND / 2, NOON, None])
async def test_the_newest_answer_wins(cache: Cache, updated_at: datetime | None) -> None:
    """A service's `updated_at` may decrease: its last answer counts."""
    await cache.store_runs([make_run(1, "working")], asked_at=NOON)
    changes = await cache.store_runs([make_run(1, "failed", updated_at=updated_at)], asked_at=NOON + SECOND)

    assert [(moved.old, moved.new) for moved in changes.transitions] == [("working", "failed")]
    assert (await held(cache)).run == make_run(1, "failed", updated_at=updated_at or NOON)


@pytest.mark.parametrize(
    ("shown_at", "counts"),
    [(NOON - SECOND, False), (NOON, True), (NOON + SECOND / 2, True), (NOON + SECOND, True), (None, True)],
    ids=["older", "whole seconds", "same", "newer", "unreadable"],
)
async def test_an_older_answer_never_undoes_a_write(cache: Cache, shown_at: datetime | None, counts: bool) -> None:
    """A list may be older than the answer to a write, even after it showed a newer state once."""
    written_at = NOON + SECOND / 2
    await cache.store_runs([make_run(1, "completed", updated_at=NOON - SECOND)], asked_at=NOON)
    await cache.store_runs([make_run(1, "queued", updated_at=written_at)], NOON + SECOND, is_of_write=True)

    listed = make_run(1, "failed", updated_at=shown_at)
    changes = [await cache.store_runs([listed], NOON + n * SECOND) for n in (2, 3)]
    await cache.store_runs([make_run(1, "working", updated_at=NOON + 9 * SECOND)], NOON + 9 * SECOND)
    late = await cache.store_runs([listed], NOON + 10 * SECOND)

    assert [len(changed.transitions) for changed in (*changes, late)] == ([1, 0, 1] if counts else [0, 0, 0])


async def test_an_overtaken_answer_changes_nothing(cache: Cache) -> None:
    """An answer that was requested earlier and arrived later only counts if the clock was since set back."""
    done = make_run(1, "completed", updated_at=NOON + SECOND, branch="agent/final")
    await cache.store_runs([done], asked_at=NOON + 9 * SECOND)
    await cache.set_presence(["run_0001"], "lost")
    changes = await cache.store_runs([make_run(1, "working", updated_at=NOON + 5 * SECOND)], asked_at=NOON)
    detail = await held(cache)
    await cache.store_runs([make_run(2, "working")], asked_at=NOON + timedelta(hours=1))
    after = await cache.store_runs([make_run(2, "failed")], asked_at=NOON)

    assert changes == RunChanges()
    assert (detail.run, detail.presence, detail.last_seen_at) == (done, "lost", NOON + 9 * SECOND)
    assert len(detail.transitions) == 1
    assert len(after.transitions) == 1
    assert present(await cache.detail("run_0002")).last_seen_at == NOON


async def test_odd_runs_are_stored(cache: Cache) -> None:
    """Unreadable times sort last, lone surrogates become question marks, and NUL and quotes stay."""
    odd = [make_run(1, status, created_at=None, updated_at=None) for status in ("queued", "working")]
    hostile = make_run(2, "sta\x00te'; DROP TABLE runs --", branch="a\ud800b")
    await cache.store_runs([odd[0], hostile], asked_at=NOON)
    changes = await cache.store_runs([odd[1]], asked_at=NOON + 5 * SECOND)
    rows = await cache.rows(RunFilter(), RunSort(), offset=0, limit=9)
    (row,) = await cache.rows(RunFilter(search="A\udfffB"), RunSort(), offset=0, limit=9)

    assert changes.transitions == (StatusTransition("run_0001", "queued", "working", NOON + 5 * SECOND),)
    assert [(each.run_id, each.created_at) for each in rows] == [("run_0002", NOON), ("run_0001", None)]
    assert (row.status, row.branch_name) == (hostile.status, "a?b")


async def test_simultaneous_answers_are_stored_separately(cache: Cache) -> None:
    """The later of two answers about one run wins, and one that cannot be stored does not affect others."""
    changes = await asyncio.gather(
        cache.store_runs([make_run(1, "failed"), make_run(2)], NOON + SECOND),
        cache.store_runs([make_run(1, "working"), make_run(3)], NOON),
        cache.store_runs([], NOON),
        cache.store_runs([make_run(2), make_run(3, "failed")], NOON + SECOND),
    )
    bad = NOON.replace(tzinfo=None)
    outcomes = await asyncio.gather(
        *(cache.store_runs([make_run(n)], bad if n % 2 else NOON) for n in range(11, 16)), return_exceptions=True
    )

    assert [set(changed.new) for changed in changes] == [{"run_0001", "run_0002"}, {"run_0003"}, set(), set()]
    assert [len(changed.transitions) for changed in changes] == [0, 0, 0, 1]
    assert (await held(cache)).run.status == "failed"
    assert [isinstance(outcome, ValueError) for outcome in outcomes] == [True, False, True, False, True]
    assert await cache.count(RunFilter()) == 5


async def test_answers_stored_at_the_same_moment_share_a_transaction(cache: Cache) -> None:
    """No reader sees one of two answers that are stored together, however long preparing the other takes."""
    statements: list[str] = []
    await cache.store_runs([make_run(1, "completed")], NOON)
    await cache.writer.run(lambda connection: connection.set_trace_callback(statements.append))

    many = [make_run(1, "completed", updated_at=NOON + 2 * SECOND), *map(make_run, range(2, 5_000))]
    await asyncio.gather(
        cache.store_runs([make_run(1, "working", updated_at=NOON + SECOND)], NOON + SECOND),
        cache.store_runs(many, NOON + 2 * SECOND),
    )

    assert statements.count("COMMIT") == 1
    assert len((await held(cache)).transitions) == 3
