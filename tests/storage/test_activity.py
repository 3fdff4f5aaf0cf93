"""The poll log and the journal of the ledger."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from storage.cache import polls
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import ActionFailure, PollOutcome
from storage.records.activity import ActivityFilter
from tests.lab import Clock
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


async def test_polls_are_filtered(cache: Cache) -> None:
    """By kind, by outcome, and by words in any case of any script."""
    await poll(cache, NOON)
    await poll(cache, NOON + MINUTE, "unreachable", "Connection refused ÜBER the wire")
    await poll(cache, NOON + 2 * MINUTE)
    await cache.record_poll(PollOutcome("health", NOON + 3 * MINUTE))
    for wanted, minutes in (
        (ActivityFilter(kinds=("poll.health",)), [3]),
        (ActivityFilter(kinds=("run.start",)), []),
        (ActivityFilter(outcomes=("failed", "unknown")), [1]),
        (ActivityFilter(search="REFUSED  über"), [1]),
        (ActivityFilter(search="poll.runs answered"), [2, 0]),
        (ActivityFilter(search="'; DROP TABLE poll_log"), []),
    ):
        found = await cache.polls(wanted, limit=10)
        assert [(span.first_at - NOON) // MINUTE for span in found.newest] == minutes
        assert (found.matching, sum(found.tally.values())) == (len(minutes), 4)


Prepare = Callable[..., Awaitable[Any]]


async def test_the_journal_is_filtered(ledger: Ledger, prepare: Prepare, clock: Clock) -> None:
    """By kind, by state, by words of what was sent and of what came back; since when, by what ended then."""
    await prepare(key="1", kind="run.continue", subject="run_9", body_json='{"instructions": "PRÜFE das."}')
    refused = await prepare(key="2", subject="bob@x.test")
    clock.move(seconds=60)
    await ledger.sending(refused.action_id)
    await ledger.reject(refused.action_id, ActionFailure("rejected", "No such offer.", 400, "invalid_offer"))
    for wanted, subjects in (
        (ActivityFilter(kinds=("run.continue",)), ["run_9"]),
        (ActivityFilter(kinds=("poll.runs",)), []),
        (ActivityFilter(outcomes=("rejected",)), ["bob@x.test"]),
        (ActivityFilter(search="BOB"), ["bob@x.test"]),
        (ActivityFilter(search="prüfe das"), ["run_9"]),
        (ActivityFilter(search="no such offer"), ["bob@x.test"]),
        (ActivityFilter(search="bob run_9"), []),
        (ActivityFilter(since=NOON + timedelta(seconds=30)), ["bob@x.test"]),
    ):
        found = await ledger.journal(wanted, limit=10)
        assert ([action.subject for action in found.newest], found.matching) == (subjects, len(subjects))
