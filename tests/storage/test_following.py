"""Following runs: pins, and changes of status."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from storage.cache.cache import Cache
from storage.cache.schema import KEPT_EVENTS
from storage.records.following import RunEvents
from storage.records.results import FailureFacts
from tests.storage.conftest import NOON, make_run

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def test_changes_are_returned_once_in_order(cache: Cache) -> None:
    """Changes after the mark are returned; a run first seen counts as a change from nothing.

    Earlier ones are not news.
    """
    await cache.store_runs([make_run(1), make_run(2)], asked_at=NOON)
    await cache.pin("run_0002", at=NOON)
    mark = await cache.watermark()
    moved = [make_run(1, "failed", updated_at=NOON + 2 * MINUTE), make_run(2, "completed", updated_at=NOON + MINUTE)]
    new = make_run(3, "failed", updated_at=NOON + 3 * MINUTE, created_at=NOON + MINUTE)
    await cache.store_runs([*moved, new], asked_at=NOON + 3 * MINUTE)

    found = await cache.changes(mark, since=NOON)

    assert [(m.run_id, m.old, m.new, m.is_pinned) for m in found.changes] == [
        ("run_0002", "working", "completed", True),
        ("run_0001", "working", "failed", False),
        ("run_0003", None, "failed", False),
    ]
    assert found.changes[2].active_since == NOON + MINUTE
    old = [make_run(n, "failed", created_at=NOON - 9 * HOUR, updated_at=NOON - 8 * HOUR) for n in range(50, 90)]
    await cache.store_runs(old, asked_at=NOON)
    assert (await cache.changes(found.watermark, since=NOON)).changes == ()


async def found(cache: Cache, cursor: str, limit: int = 9, *, holds_failures: bool = False) -> RunEvents:
    """The events after a valid cursor."""
    page = await cache.events(cursor, limit, holds_failures=holds_failures)
    assert page is not None
    return page


async def test_each_change_is_one_event_in_order(cache: Cache) -> None:
    """A run that had ended at the first answer is history, even if it was cancelled.

    For others a cancellation is a change.
    """
    ended = make_run(6, "failed", created_at=NOON - HOUR)
    await cache.store_runs([make_run(1), make_run(2), ended], asked_at=NOON, news_from=NOON)
    first, cursor = (await found(cache, "")).events, (await found(cache, "now")).cursor
    old, new = make_run(3, "failed", created_at=NOON - HOUR), make_run(4, "queued", created_at=NOON + MINUTE)
    await cache.store_runs([old, new, make_run(5, created_at=NOON - HOUR)], asked_at=NOON + MINUTE)
    failed = make_run(1, "failed", updated_at=NOON + 2 * MINUTE)
    await cache.store_runs([failed, make_run(2), new], asked_at=NOON + 2 * MINUTE)

    held = await found(cache, cursor, holds_failures=True)
    early = await found(cache, held.cursor)
    await cache.store_failure_facts(FailureFacts(cancelled=("run_0001", "run_0006")), await cache.questions_due())
    rest = await found(cache, held.cursor, holds_failures=True)
    late = await found(cache, early.cursor, holds_failures=True)
    paged = [(await found(cache, one.cursor, 1)).events for one in held.events]

    assert [(e.run_id, e.old, e.new, e.at) for e in held.events] == [
        ("run_0004", None, "queued", NOON),
        ("run_0005", None, "working", NOON),
    ]
    assert (held.is_held, rest.is_held) == (True, False)
    assert [(e.run_id, e.old, e.new) for e in early.events] == [("run_0001", "working", "failed")]
    assert [(e.run_id, e.old, e.new) for e in late.events] == [("run_0001", "failed", "cancelled")]
    assert rest.events == (replace(late.events[0], old="working"),)
    assert rest.events[0].at == NOON + 2 * MINUTE
    assert paged == [held.events[1:], early.events]
    assert [(e.run_id, e.old, e.new) for e in first] == [("run_0001", None, "working"), ("run_0002", None, "working")]
    assert (await found(cache, "")).events == (*first, *held.events, *rest.events)


async def test_an_invalid_cursor_is_refused(cache: Cache, cache_path: Path, tmp_path: Path) -> None:
    """The cursor's next event may be dropped, it may be of another cache or of the future, or it may be no cursor."""
    await cache.store_runs([], asked_at=NOON, news_from=NOON)
    start = (await found(cache, "now")).cursor
    await cache.store_runs([make_run(n) for n in range(3)], asked_at=NOON)
    with closing(sqlite3.connect(cache_path)) as file, file:
        file.execute(f"UPDATE sqlite_sequence SET seq = {KEPT_EVENTS} WHERE name = 'events'")
    await cache.store_runs([make_run(n) for n in (3, 4)], asked_at=NOON)
    kept = await found(cache, "")
    async with await Cache.open(tmp_path / "other.sqlite3") as other:
        foreign = (await found(other, "now")).cursor

    cursors = (start, kept.cursor, foreign, f"{start}9999999999", "", "x", f"{start.partition('.')[0]}.-1")
    refused = [await cache.events(each, 9, holds_failures=False) is None for each in cursors]

    assert [event.run_id for event in kept.events] == ["run_0002", "run_0003", "run_0004"]
    assert refused == [True, False, True, True, False, True, True]
