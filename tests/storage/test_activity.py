"""The poll log, and the ledger's filters."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from storage.cache import polls
from storage.cache.cache import Cache
from storage.ledger import Ledger
from storage.records import ActionFailure, ActionFilter, PollOutcome
from tests.lab import Clock
from tests.storage.conftest import NOON

MINUTE = timedelta(minutes=1)


async def poll(cache: Cache, at: datetime, kind: str | None = None, message: str | None = None) -> None:
    """One poll of runs."""
    await cache.record_poll(PollOutcome("runs", at, kind, message, 503 if kind else None))


async def test_equal_polls_are_one_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed result or an unobserved gap begins another entry. The oldest entries are dropped."""
    for minute in range(3):
        await poll(cache, NOON + minute * MINUTE)
    for minute in range(3, 5):
        await poll(cache, NOON + minute * MINUTE, "server_failed", f"try {minute}")
    await cache.record_poll(PollOutcome("health", NOON))
    found = await cache.polls(10, "runs")
    since = await cache.polls(10, "runs", NOON + 2 * MINUTE)
    later = await cache.polls(10, "runs", NOON + 2.1 * MINUTE)
    monkeypatch.setattr(polls, "MAX_POLLS_KEPT", 10)
    gap = polls.MAX_GAP
    for after in (gap, gap * 2, gap * 3 + timedelta(seconds=1)):
        await poll(cache, NOON + 5 * MINUTE + after)
    apart = await cache.polls(2)
    for number in range(25):
        await poll(cache, NOON + timedelta(days=1, seconds=number), "timed_out" if number % 2 else None)
    capped = await cache.polls(100)

    failed, answered = found
    assert (answered.polls, answered.first_at, answered.last_at) == (3, NOON, NOON + 2 * MINUTE)
    assert (failed.polls, failed.error_kind, failed.error_message) == (2, "server_failed", "try 4")
    assert failed.http_status == 503
    # An entry that overlaps the requested time is included.
    assert (len(since), len(later)) == (2, 1)
    assert [span.polls for span in apart] == [1, 2]
    assert (len(capped), capped[0].first_at) == (10, NOON + timedelta(days=1, seconds=24))


Prepare = Callable[..., Awaitable[Any]]


async def test_actions_are_filtered(ledger: Ledger, prepare: Prepare, clock: Clock) -> None:
    """Filters use kind, state, the words of request and answer, and the time, including that of the settlement."""
    await prepare(key="1", kind="run.continue", subject="run_9", body_json='{"instructions": "PRÜFE das."}')
    refused = await prepare(key="2", subject="bob@x.test")
    clock.move(seconds=60)
    await ledger.sending(refused.action_id)
    no_offer = ActionFailure("rejected", "No such offer.", 400, "invalid_offer")
    await ledger.settle(refused.action_id, "rejected", no_offer)
    for wanted, subjects in (
        (ActionFilter(kinds=("run.continue",)), ["run_9"]),
        (ActionFilter(states=("rejected",)), ["bob@x.test"]),
        (ActionFilter(search="BOB"), ["bob@x.test"]),
        (ActionFilter(search="prüfe das"), ["run_9"]),
        (ActionFilter(search="no such offer"), ["bob@x.test"]),
        (ActionFilter(search="bob run_9"), []),
    ):
        found, count = await ledger.actions(wanted, 10), await ledger.count(wanted)
        assert ([action.subject for action in found], count) == (subjects, len(subjects))
