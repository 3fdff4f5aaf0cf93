"""What processes share: a lease until it expires, an alert for good, and the request budget."""

import ast
import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.api.budget import Budget, Priority
from app.api.errors import RateLimitedError
from storage.cache.cache import Cache
from storage.records.activity import BudgetState
from storage.records.alert import Alert, Message, Plan
from storage.state import State
from tests.lab import Clock
from tests.storage.conftest import NOON, race

AT_ONCE = """
from storage.records.alert import Alert
def alert(key):
    return Alert("failed:x", "", "default", "error", "t", {}, key=key, body="", at=datetime.now(UTC))
alerts = [alert(f"key-{n}") for n in range(20)]
async with await State.open(Path(path)) as state:
    await start()
    is_holder = await state.acquire_lease("poller", number, 60)
    print((is_holder, sorted(await state.claim_alerts(alerts, datetime.now(UTC), apart=False))))
"""


@pytest.fixture
async def lease(tmp_path: Path, clock: Callable[[], datetime]) -> AsyncIterator[State]:
    async with await State.open(tmp_path / "state.sqlite3", clock=clock) as state:
        yield state


STORIES = {
    "it runs out": [("ann", True), ("ann", True), 29, ("bob", False), 1, ("bob", True), ("ann", False)],
    "renewed from now, not from the end of the old term": [("ann", True), 20, ("ann", True), 20, ("bob", False)],
    "kept as it is in its first half": [("ann", True), 14, ("ann", True), 15, ("bob", False), 1, ("bob", True)],
    "only the holder releases": [("ann", True), ("bob", "leaves"), ("bob", False), ("ann", "leaves"), ("bob", True)],
    "a clock a little behind takes nothing": [("ann", True), -2, ("bob", False)],
    "a clock set back does not lock everybody out": [("ann", True), -86_400, ("bob", True)],
}
"""Steps of a lease of thirty seconds: who requests it and whether it is granted, who releases it, and clock moves."""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_lease_has_one_holder_until_it_expires(
    lease: State, clock: Clock, story: list[float | tuple[str, bool | str]]
) -> None:
    """Another name is another lease."""
    for step in story:
        match step:
            case (who, "leaves"):
                await lease.release_lease("poller", who)
            case (who, granted):
                assert await lease.acquire_lease("poller", who, 30) is granted
            case seconds:
                clock.move(seconds=seconds)
    assert await lease.acquire_lease("backfill", "eve", 30)


def alert(key: str, *after: str) -> Alert:
    """An alert about a host, or its recovery."""
    return Alert("host:github", "", "default", "error", "t", {}, key=key, body="", at=NOON, after=after)


async def test_an_alert_is_reported_by_one_process(lease: State) -> None:
    """The first one reports it, until it is forgotten after three months; the recovery comes from the same process."""
    assert await lease.claim_alerts([alert("a"), alert("b")], NOON, apart=False) == {"a", "b"}
    assert await lease.claim_alerts([alert("b"), alert("c"), alert("over", "a")], NOON, apart=False) == {"c", "over"}
    await lease.enter_alerts([alert("of a bot"), alert("c")], NOON)
    assert [each.key for each in await lease.waiting_alerts()] == ["of a bot"]

    assert await lease.claim_alerts([alert("over 2", "of a bot")], NOON, apart=False) == set()
    # A plan is discarded if a console has reported its alert in the meantime, so nothing is reported twice.
    message = Message("default", ":host", "new", "error", "t", "", ("host:github",))
    assert not await lease.apply_plan(Plan((message,), {"a": "notified"}), NOON, 0)
    assert await lease.due_deliveries(NOON) == ()
    assert await lease.claim_alerts([alert("a")], NOON, apart=True) == {"a"}
    assert await lease.reported_alerts(["a", "of a bot", "d"], apart=False) == {"a"}
    assert await lease.claim_alerts([alert("a")], NOON + timedelta(days=91), apart=False) == {"a"}


def test_one_of_many_processes_has_the_lease_and_reports(tmp_path: Path) -> None:
    """Of four simultaneous processes one has the lease, and every alert is reported once."""
    answers = [ast.literal_eval(answer) for answer in race(AT_ONCE, 4, str(tmp_path / "state.sqlite3"))]

    assert sorted(is_holder for is_holder, _ in answers) == [False, False, False, True]
    assert sorted(key for _, told in answers for key in told) == sorted(f"key-{n}" for n in range(20))


COUNT = """
from msgspec.structs import replace
async with await Cache.open(Path(path)) as cache:
    await start()
    for _ in range(20):
        await cache.change_budget(lambda state: replace(state, failures=state.failures + 1))
    print("done")
"""


async def test_processes_share_the_budget(cache: Cache, cache_path: Path) -> None:
    """No process is notified of an unchanged value. Without a usable cache, each process keeps its own pause."""
    async with await Cache.open(cache_path) as other:
        await cache.change_budget(lambda state: replace(state, paused_at_s=1.0, paused_until_s=61.5))
        assert await other.budget() == BudgetState(paused_at_s=1.0, paused_until_s=61.5)
        before = await other.data_version()
        await cache.change_budget(lambda state: state)
        assert await other.data_version() == before
    budget, refused = Budget(cache), RateLimitedError("slow down", retry_after_s=60.0)
    await cache.close()
    with pytest.raises(RateLimitedError):
        async with budget.turn(Priority.WRITE):
            raise refused
    assert (await budget.wait(Priority.ASKED)).reason == "rate_limit"


def test_simultaneous_changes_are_atomic(cache_path: Path) -> None:
    """Each change is atomic."""
    assert race(COUNT, 4, str(cache_path)) == ["done"] * 4

    async def held() -> float:
        async with await Cache.open(cache_path) as cache:
            return (await cache.budget()).failures

    assert asyncio.run(held()) == 80
