"""Following: pins, and what moved."""

from datetime import timedelta

from storage.cache.cache import Cache
from storage.cache.following import PIN_CAP, PIN_KEPT
from storage.records.following import RunDurations
from tests.storage.conftest import NOON, make_run

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def test_a_pinned_run_is_given_with_its_repositorys_times(cache: Cache) -> None:
    """A pin goes a day after its run's end; and there are never more than so many."""
    took = [make_run(n, "completed", created_at=NOON - HOUR, updated_at=NOON - HOUR + n * MINUTE) for n in range(1, 21)]
    await cache.store_runs([*took, make_run(60)], asked_at=NOON + 3 * MINUTE)

    await cache.following.pin("run_0060", at=NOON)

    (pinned,) = await cache.following.pins()
    assert pinned.durations == RunDurations(600.0, 1140.0, 20)
    assert pinned.row.last_seen_at == NOON + 3 * MINUTE
    assert (pinned.row.status, pinned.row.repository) == ("working", "acme/api")
    await cache.store_runs([make_run(61, "failed")], asked_at=NOON)
    await cache.following.pin("run_0061", at=NOON)
    await cache.following.pin("run_0003", at=NOON + PIN_KEPT + MINUTE)
    assert {pin.run_id for pin in await cache.following.pins()} == {"run_0060", "run_0003"}
    for number in range(PIN_CAP):
        await cache.following.pin(f"run_x{number}", at=NOON + PIN_KEPT + HOUR)
    assert len(await cache.following.pins()) == PIN_CAP


async def test_moves_are_given_once_in_their_order(cache: Cache) -> None:
    """From the mark on; a run first seen in its state counts as a move from nothing. What came before is no news."""
    await cache.store_runs([make_run(1), make_run(2)], asked_at=NOON)
    await cache.following.pin("run_0002", at=NOON)
    mark = await cache.following.watermark()
    moved = [make_run(1, "failed", updated_at=NOON + 2 * MINUTE), make_run(2, "completed", updated_at=NOON + MINUTE)]
    new = make_run(3, "failed", updated_at=NOON + 3 * MINUTE, created_at=NOON + MINUTE)
    await cache.store_runs([*moved, new], asked_at=NOON + 3 * MINUTE)

    found = await cache.following.changes(mark, since=NOON)

    assert [(m.run_id, m.old, m.new, m.is_pinned) for m in found.changes] == [
        ("run_0002", "working", "completed", True),
        ("run_0001", "working", "failed", False),
        ("run_0003", None, "failed", False),
    ]
    assert found.changes[2].active_since == NOON + MINUTE
    old = [make_run(n, "failed", created_at=NOON - 9 * HOUR, updated_at=NOON - 8 * HOUR) for n in range(50, 90)]
    await cache.store_runs(old, asked_at=NOON)
    assert (await cache.following.changes(found.watermark, since=NOON)).changes == ()
