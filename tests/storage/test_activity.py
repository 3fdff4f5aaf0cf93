"""The poll log and the journal of the ledger."""

from datetime import datetime, timedelta

import pytest

from storage.cache import polls
from storage.cache.cache import Cache
from storage.records import PollOutcome
from storage.records.activity import ActivityFilter
from tests.storage.conftest import NOON

MINUTE = timedelta(minutes=1)


ANY = ActivityFilter()


async def poll(cache: Cache, at: datetime, kind: str | None = None, message: str | None = None) -> None:
    """One poll of runs."""
    await cache.record_poll(PollOutcome("runs", at, kind, message, 503 if kind else None))


async def test_polls_that_go_alike_are_one_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change begins another, and a gap, which nobody observed. The oldest entries go."""
    for minute in range(3):
        await poll(cache, NOON + minute * MINUTE)
    for minute in range(3, 5):
        await poll(cache, NOON + minute * MINUTE, "server_failed", f"try {minute}")
    found = await cache.polls(ANY, limit=10)
    since = await cache.polls(ActivityFilter(since=NOON + 2 * MINUTE), limit=10)
    later = await cache.polls(ActivityFilter(since=NOON + 2.1 * MINUTE), limit=10)
    monkeypatch.setattr(polls, "CAP", 10)
    gap = polls.LONGEST_GAP
    for after in (gap, gap * 2, gap * 3 + timedelta(seconds=1)):
        await poll(cache, NOON + 5 * MINUTE + after)
    apart = (await cache.polls(ANY, limit=2)).newest
    for number in range(25):
        await poll(cache, NOON + timedelta(days=1, seconds=number), "timed_out" if number % 2 else None)
    capped = await cache.polls(ANY, limit=100)

    failed, answered = found.newest
    assert (answered.polls, answered.first_at, answered.last_at) == (3, NOON, NOON + 2 * MINUTE)
    assert (failed.polls, failed.error_kind, failed.error_message) == (2, "server_failed", "try 4")
    assert failed.http_status == 503
    assert (found.matching, found.tally) == (2, {("poll.runs", "answered"): 1, ("poll.runs", "failed"): 1})
    # An entry that reaches into the time asked for is there.
    assert (since.matching, later.matching) == (2, 1)
    assert [span.polls for span in apart] == [1, 2]
    assert (capped.matching, capped.newest[0].first_at) == (10, NOON + timedelta(days=1, seconds=24))
