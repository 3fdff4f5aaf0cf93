"""The limits on how many requests the service gets, and how often."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any

import pytest

from app.api.budget import FAILURES_TO_REST, Budget, BudgetChange, Priority
from app.api.errors import (
    ApiError,
    NotFoundError,
    NoTokenError,
    RateLimitedError,
    RequestTimeoutError,
    ServerFailedError,
    UnreachableError,
)
from app.sync.polling import MAX_S, Cadence
from storage.records.activity import BudgetState

RESTING = (Priority.ACTIVE, Priority.HEALTH, Priority.BACKFILL)
"""Priorities of requests while no user waits."""


class _Selector(selectors.DefaultSelector):
    """Advances the time instead of waiting for it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on a loop whose time only passes when nothing is left to do; thread jobs run at once."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        selector = _Selector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            loop = runner.get_loop()
            loop.time = lambda: selector.now_s  # type: ignore[method-assign]
            loop.run_in_executor = partial(_at_once, loop)  # type: ignore[assignment,method-assign]
            runner.run(test(*args, **kwargs))

    return run


def _at_once(
    loop: asyncio.AbstractEventLoop, _executor: object, call: Callable[..., Any], *args: Any
) -> asyncio.Future[Any]:
    future = loop.create_future()
    try:
        future.set_result(call(*args))
    except Exception as error:  # noqa: BLE001 — as an executor does
        future.set_exception(error)
    return future


class SharedState:
    """The part of the cache that stores the budget."""

    state = BudgetState()

    async def budget(self) -> BudgetState:
        return self.state

    async def change_budget(self, change: BudgetChange) -> BudgetState:
        self.state = change(self.state)
        return self.state


class Service:
    """Answers as scripted, then successfully; requests take a tenth of a second."""

    def __init__(self, *script: ApiError | None) -> None:
        self.script = list(script)
        self.budgets: list[Budget] = []
        self.cache = SharedState()
        self.asked = 0

    def process(self) -> Budget:
        """The budget of another process of the same data folder."""
        budget = Budget(self.cache, now_s=lambda: 1e9 + asyncio.get_running_loop().time(), draw=lambda: 0.5)
        self.budgets.append(budget)
        return budget

    async def answer(self) -> str:
        self.asked += 1
        await asyncio.sleep(0.1)
        if (error := self.script.pop(0) if self.script else None) is not None:
            raise error
        return "page"

    async def ask(self, budget: Budget, priority: Priority = Priority.ASKED) -> str:
        try:
            return await budget.in_turn(priority, self.answer)
        finally:
            await budget.settle()

    async def fails(self, budget: Budget, times: int) -> None:
        for _ in range(times):
            with pytest.raises(ApiError):
                await self.ask(budget)


def limited(wait_s: float | None) -> RateLimitedError:
    return RateLimitedError("slow down", retry_after_s=wait_s)


@in_virtual_time
async def test_a_stated_wait_applies_to_every_process() -> None:
    """The refused process and another one report until when; after that both continue."""
    service = Service(limited(60), limited(60))
    one, other = service.process(), service.process()
    with pytest.raises(RateLimitedError, match="slow down"):
        await service.ask(one)
    for budget in (one, other):
        with pytest.raises(RateLimitedError, match="asked to wait until") as caught:
            await service.ask(budget)
        assert caught.value.retry_after_s == pytest.approx(60)
    await asyncio.sleep(61)

    assert service.asked == 1
    with pytest.raises(RateLimitedError):
        await service.ask(other)
    assert service.asked == 2


@in_virtual_time
async def test_a_users_request_waits_out_a_short_wait_and_is_sent_once_more() -> None:
    """A refused poll is not repeated, since the next one will do. After a 429 without a wait, no user waits."""
    asked, polled, unstated = Service(limited(3)), Service(limited(1)), Service(limited(None))
    with pytest.raises(RateLimitedError):
        await polled.ask(polled.process(), Priority.ACTIVE)

    assert await asked.ask(asked.process()) == "page"
    assert (asked.asked, polled.asked) == (2, 1)
    budget = unstated.process()
    await unstated.fails(budget, 1)
    assert await unstated.ask(budget) == "page"
    assert await budget.wait(Priority.ACTIVE) is not None


@in_virtual_time
async def test_a_write_waits_seconds_at_most_and_is_never_sent_twice() -> None:
    """After that the service itself decides, and its refusal is the result."""
    service = Service(limited(60), limited(4))
    budget = service.process()
    await service.fails(budget, 1)
    start = asyncio.get_running_loop().time()
    with pytest.raises(RateLimitedError):
        async with budget.turn(Priority.WRITE):
            await service.answer()

    assert asyncio.get_running_loop().time() - start < 1
    assert service.asked == 2


@in_virtual_time
async def test_after_a_429_polls_and_history_pause_longer_than_a_user() -> None:
    """Other clients of the organization wait for the same moment; a user's request is sent when the wait is over."""
    service = Service(limited(20), limited(20))
    budget = service.process()
    await service.fails(budget, 1)
    await asyncio.sleep(20)
    waits = [await budget.wait(priority) for priority in (Priority.ASKED, *RESTING)]

    assert waits[0] is None
    assert {wait and wait.reason for wait in waits[1:]} == {"own_pace"}
    await asyncio.sleep(1)
    assert await budget.wait() is None


@in_virtual_time
async def test_polls_and_history_pause_while_the_service_is_down() -> None:
    """After consecutive failures every process pauses longer each time.

    A user's request is sent, and ends the pause.
    """
    few: list[ApiError | None] = [RequestTimeoutError("")] * (FAILURES_TO_REST - 1)
    alive = Service(*few, NotFoundError("", status=404), *few, NoTokenError(""), NoTokenError(""))
    budget = alive.process()
    await alive.fails(budget, 2 * FAILURES_TO_REST + 1)
    assert await budget.wait() is None

    service = Service(*[ServerFailedError("", status=503)] * (FAILURES_TO_REST + 1))
    one, other = service.process(), service.process()
    await service.fails(one, FAILURES_TO_REST)
    first = await other.wait()
    assert first is not None
    assert {wait and wait.reason for wait in [await other.wait(each) for each in RESTING]} == {"service_down"}
    with pytest.raises(UnreachableError, match="again at"):
        async with other.turn(Priority.HEALTH, until_s=1.0):
            pytest.fail("it is too soon")
    await service.fails(other, 1)
    second = await one.wait()

    assert second.until > first.until
    assert await service.ask(other) == "page"
    assert [await budget.wait() for budget in service.budgets] == [None, None]


def test_failures_slow_polling_and_success_restores_it_in_steps() -> None:
    """A failure doubles the wait up to a limit."""
    for draw, wait_s in ((0.0, 10.0), (0.5, 15.0)):
        spread = Cadence(10.0, draw=lambda draw=draw: draw)
        spread.record_failure(0.0)
        assert spread.wait_s(0.0) == wait_s, "consoles that failed together do not come back together"
    cadence = Cadence(10.0, draw=lambda: 1.0)
    waits = [cadence.wait_s(0.0)]
    for happened in (*[cadence.record_failure] * 3, *[cadence.record_success] * 5, *[cadence.record_failure] * 8):
        happened(0.0)
        waits.append(cadence.wait_s(0.0))
    cadence.due_at_s = 0.0

    assert waits[:9] == [0.0, 20.0, 40.0, 60.0, 30.0, 15.0, 10.0, 10.0, 10.0]
    assert (waits[-1], cadence.wait_s(0.0)) == (MAX_S, 0.0)
