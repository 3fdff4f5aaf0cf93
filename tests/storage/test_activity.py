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
from tests.storage.conftest import NOON

Prepare = Callable[..., Awaitable[Any]]
ANY = ActivityFilter()


async def poll(cache: Cache, at: datetime, kind: str | None = None, message: str | None = None) -> None:
    """One poll of runs."""
    await cache.record_poll(PollOutcome("runs", at, kind, message, 503 if kind else None))


async def test_polls_that_go_alike_are_one_entry(cache: Cache) -> None:
    """From the first to the last, with their number; a change begins another."""
    for minute in range(3):
        await poll(cache, NOON + timedelta(minutes=minute))
    for minute in range(3, 5):
        await poll(cache, NOON + timedelta(minutes=minute), "server_failed", f"try {minute}")

    found = await cache.polls(ANY, limit=10)

    failed, answered = found.newest
    assert (answered.polls, answered.first_at, answered.last_at) == (3, NOON, NOON + timedelta(minutes=2))
    assert (failed.polls, failed.error_kind, failed.error_message, failed.http_status) == (
        2,
        "server_failed",
        "try 4",
        503,
    )
    assert (found.matching, found.tally) == (2, {("poll.runs", "answered"): 1, ("poll.runs", "failed"): 1})


async def test_a_gap_without_observations_begins_another_entry(cache: Cache) -> None:
    """One entry would claim that the service answered all night."""
    await poll(cache, NOON)
    await poll(cache, NOON + polls.LONGEST_GAP)
    await poll(cache, NOON + polls.LONGEST_GAP * 2 + timedelta(seconds=1))

    assert [span.polls for span in (await cache.polls(ANY, limit=10)).newest] == [1, 2]


async def test_a_link_that_flaps_for_ever_does_not_fill_the_disk(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest entries go."""
    monkeypatch.setattr(polls, "CAP", 10)
    for number in range(25):
        await poll(cache, NOON + timedelta(seconds=number), "timed_out" if number % 2 else None)

    found = await cache.polls(ANY, limit=100)

    assert found.matching == 10
    assert found.newest[0].first_at == NOON + timedelta(seconds=24)


@pytest.mark.parametrize(
    ("wanted", "minutes"),
    [
        (ActivityFilter(kinds=("poll.health",)), [3]),
        (ActivityFilter(kinds=("run.start",)), []),
        (ActivityFilter(outcomes=("failed", "unknown")), [1]),
        (ActivityFilter(search="REFUSED  über"), [1]),
        (ActivityFilter(search="poll.runs answered"), [2, 0]),
        (ActivityFilter(search="'; DROP TABLE poll_log"), []),
    ],
)
async def test_polls_are_filtered(cache: Cache, wanted: ActivityFilter, minutes: list[int]) -> None:
    """By kind, by outcome, and by words in any case of any script."""
    await poll(cache, NOON)
    await poll(cache, NOON + timedelta(minutes=1), "unreachable", "Connection refused ÜBER the wire")
    await poll(cache, NOON + timedelta(minutes=2))
    await cache.record_poll(PollOutcome("health", NOON + timedelta(minutes=3)))

    found = await cache.polls(wanted, limit=10)

    assert [(span.first_at - NOON) // timedelta(minutes=1) for span in found.newest] == minutes
    assert found.matching == len(minutes)
    assert sum(found.tally.values()) == 4


async def test_an_entry_that_reaches_into_the_time_asked_for_is_there(cache: Cache) -> None:
    """It began before, and went on."""
    await poll(cache, NOON)
    await poll(cache, NOON + timedelta(minutes=10))

    within = await cache.polls(ActivityFilter(since=NOON + timedelta(minutes=10)), limit=10)
    after = await cache.polls(ActivityFilter(since=NOON + timedelta(minutes=10, seconds=1)), limit=10)

    assert (within.matching, after.matching) == (1, 0)


@pytest.mark.parametrize(
    ("wanted", "subjects"),
    [
        (ActivityFilter(kinds=("run.continue",)), ["run_9"]),
        (ActivityFilter(kinds=("poll.runs",)), []),
        (ActivityFilter(outcomes=("rejected",)), ["bob@x.test"]),
        (ActivityFilter(search="BOB"), ["bob@x.test"]),
        (ActivityFilter(search="prüfe das"), ["run_9"]),
        (ActivityFilter(search="no such offer"), ["bob@x.test"]),
        (ActivityFilter(search="bob run_9"), []),
    ],
)
async def test_the_journal_is_filtered(
    ledger: Ledger, prepare: Prepare, wanted: ActivityFilter, subjects: list[str]
) -> None:
    """By kind, by state, and by words of what was sent and of what came back."""
    await prepare(key="1", kind="run.continue", subject="run_9", body_json='{"instructions": "PRÜFE das."}')
    refused = await prepare(key="2", subject="bob@x.test")
    await ledger.sending(refused.action_id)
    await ledger.reject(refused.action_id, ActionFailure("rejected", "No such offer.", 400, "invalid_offer"))

    found = await ledger.journal(wanted, limit=10)

    assert [action.subject for action in found.newest] == subjects
    assert found.matching == len(subjects)


async def test_the_journal_since_counts_what_ended_then(
    ledger: Ledger, prepare: Prepare, forward: Callable[[float], None]
) -> None:
    """An action that began before and was settled after is part of what happened."""
    action = await prepare(key="1", subject="a@x.test")
    await prepare(key="2", subject="b@x.test")
    forward(60)
    await ledger.sending(action.action_id)
    await ledger.confirm(action.action_id, result_id="org_1", response_json=None)

    found = await ledger.journal(ActivityFilter(since=NOON + timedelta(seconds=30)), limit=10)

    assert [action.subject for action in found.newest] == ["a@x.test"]
