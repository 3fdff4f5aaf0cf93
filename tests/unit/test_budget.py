"""How hard the service may be asked."""

import asyncio
from itertools import pairwise

import pytest

from app.api.budget import Budget, MemoryStore, Priority
from app.api.client import in_turn
from app.api.errors import (
    ApiError,
    NotFoundError,
    NoTokenError,
    RateLimitedError,
    RequestTimeoutError,
    ServerFailedError,
    UnreachableError,
)
from app.api.pace import FAILURES_TO_OPEN, POLL, PROBE_TERM_S
from tests.virtual_time import in_virtual_time

RESTING = (Priority.ACTIVE, Priority.HEALTH, Priority.BACKFILL)
"""What is asked while no person waits."""


class Service:
    """Answers as scripted, then well; requests take a tenth of a second."""

    def __init__(self, *script: ApiError | None) -> None:
        self.script = list(script)
        self.budgets: list[Budget] = []
        self.store = MemoryStore()
        self.asked = 0

    def process(self) -> Budget:
        """The budget of another process of the same data folder."""
        budget = Budget(self.store, now_s=lambda: 1e9 + asyncio.get_running_loop().time(), draw=lambda: 0.5)
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
            return await in_turn(budget, priority, self.answer)
        finally:
            await budget.settle()

    async def fails(self, budget: Budget, times: int) -> None:
        for _ in range(times):
            with pytest.raises(ApiError):
                await self.ask(budget)


def limited(wait_s: float | None) -> RateLimitedError:
    return RateLimitedError("slow down", retry_after_s=wait_s)


@in_virtual_time
async def test_a_stated_wait_holds_for_every_process() -> None:
    """The one that was refused and another one say until when; after that both go on."""
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
async def test_a_longer_wait_is_not_shortened_by_a_later_one() -> None:
    """Two 429s in a row: the later end counts."""
    service = Service(limited(30), limited(20))
    budget = service.process()
    await asyncio.gather(*(service.ask(budget) for _ in range(2)), return_exceptions=True)
    await asyncio.sleep(25)

    assert await budget.wait(Priority.ASKED, 1) is not None


@in_virtual_time
async def test_a_person_s_request_waits_out_a_short_wait_and_is_sent_once_more() -> None:
    """Three seconds are nothing to end a command for."""
    service = Service(limited(3))
    budget = service.process()

    assert await service.ask(budget) == "page"
    assert service.asked == 2


@in_virtual_time
async def test_a_429_without_a_wait_keeps_no_person_waiting() -> None:
    """It fails as received, and the next try goes out; polls keep their distance."""
    service = Service(limited(None))
    budget = service.process()
    await service.fails(budget, 1)

    assert await service.ask(budget) == "page"
    assert await budget.wait(Priority.ACTIVE) is not None


@in_virtual_time
async def test_a_write_waits_seconds_at_the_most_and_is_never_sent_twice() -> None:
    """After that the service itself decides; its refusal is the answer."""
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
async def test_requests_are_spaced_after_a_429_and_the_more_urgent_ones_go_first() -> None:
    """History waits until there is room for a poll beside it; a person's request is sent at once."""
    service = Service(*[None] * 40, limited(20))
    budget = service.process()
    for _ in range(40):
        await service.ask(budget)
    await service.fails(budget, 1)
    await asyncio.sleep(20)
    waits = [
        await budget.wait(priority, requests)
        for priority, requests in ((Priority.ASKED, 1), (Priority.ACTIVE, POLL), (Priority.BACKFILL, 1))
    ]

    assert waits[0] is None
    assert waits[1] is not None
    assert waits[2] is not None
    assert waits[1].until < waits[2].until
    assert waits[1].reason == "own_pace"


@in_virtual_time
async def test_the_limit_is_found_and_nearly_used_up() -> None:
    """12 requests in 10 seconds are allowed: history and polls come close to it, few are refused, no poll is late."""
    times: list[float] = []
    polled: list[float] = [0.0]
    refused = 0
    store = MemoryStore()
    loop = asyncio.get_running_loop()
    budget = Budget(store, now_s=loop.time, draw=lambda: 0.5)

    async def answer() -> None:
        nonlocal refused
        await asyncio.sleep(0.05)
        recent = [at for at in times if at > loop.time() - 10]
        if len(recent) >= 12:
            refused += 1
            raise limited(recent[0] + 10 - loop.time())
        times.append(loop.time())

    async def always(priority: Priority, requests: int, pause_s: float) -> None:
        while True:
            try:
                for _ in range(requests):
                    await in_turn(budget, priority, answer)
            except RateLimitedError as error:
                await asyncio.sleep(error.retry_after_s or 1)
            else:
                polled.extend([loop.time()] * (priority is Priority.ACTIVE))
            await asyncio.sleep(pause_s)

    work = [(Priority.ACTIVE, 4, 10.0), *[(Priority.BACKFILL, 1, 0.0)] * 8]
    tasks = [asyncio.create_task(always(*each)) for each in work]
    await asyncio.sleep(600)
    for task in tasks:
        task.cancel()

    assert max(after - before for before, after in pairwise(polled)) < 45
    assert len(times) > 0.6 * 720
    assert refused < 0.1 * len(times)


@in_virtual_time
async def test_polls_leave_history_its_share_while_it_waits() -> None:
    """Where the rate is too low for all of it, history still gets on."""
    service = Service(limited(20))
    budget = service.process()
    assert await budget.poll_rate() is None
    await service.fails(budget, 1)
    alone = await budget.poll_rate()
    await asyncio.sleep(21)
    with pytest.raises(RateLimitedError):
        await service.ask(budget, Priority.BACKFILL)
    beside = await budget.poll_rate()

    assert alone is not None
    assert beside == pytest.approx(0.75 * alone, rel=0.01)


@in_virtual_time
async def test_only_failures_in_a_row_count_and_a_refusal_is_none() -> None:
    """A 404 shows that the service is alive, and a missing token says nothing about it."""
    failures: list[ApiError | None] = [RequestTimeoutError("")] * (FAILURES_TO_OPEN - 1)
    service = Service(*failures, NotFoundError("", status=404), *failures, NoTokenError(""), NoTokenError(""))
    budget = service.process()
    await service.fails(budget, 2 * FAILURES_TO_OPEN + 1)

    assert await budget.wait() is None


@in_virtual_time
async def test_while_the_service_is_down_one_request_of_all_processes_finds_out() -> None:
    """Polls wait for their time, history for the others; a person may ask, but not while another request finds out."""
    service = Service(*[ServerFailedError("", status=503)] * (FAILURES_TO_OPEN + 1))
    one, other = service.process(), service.process()
    await service.fails(one, FAILURES_TO_OPEN)
    for priority in RESTING:
        wait = await other.wait(priority, 1)
        assert wait is not None
        assert wait.reason == "service_down"
    probe = asyncio.create_task(service.ask(one))
    await asyncio.sleep(0.05)
    service.script[0] = RequestTimeoutError("still down")
    with pytest.raises(UnreachableError, match="again at"):
        async with other.turn(Priority.ASKED, until_s=1.0):
            pytest.fail("one probe at a time")
    with pytest.raises(RequestTimeoutError):
        await probe

    assert await service.ask(other) == "page"
    assert [await budget.wait() for budget in service.budgets] == [None, None]


@in_virtual_time
async def test_a_probe_whose_process_died_keeps_the_others_for_half_a_minute_only() -> None:
    """What is not told by then is taken as dead; a probe that is cancelled tells it at once."""
    service = Service(*[ServerFailedError("", status=503)] * FAILURES_TO_OPEN)
    one, other = service.process(), service.process()
    await service.fails(one, FAILURES_TO_OPEN)
    died = one.turn(Priority.ASKED)
    await died.__aenter__()  # and nothing ever after

    assert await other.wait(Priority.ASKED, 1) is not None
    await asyncio.sleep(PROBE_TERM_S)
    assert await other.wait(Priority.ASKED, 1) is None
    turn = other.turn(Priority.ASKED)
    await turn.__aenter__()
    assert await one.wait(Priority.ASKED, 1) is not None
    await turn.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
    await other.settle()
    assert await one.wait(Priority.ASKED, 1) is None


@in_virtual_time
async def test_a_clock_set_back_makes_no_wait_longer() -> None:
    """A wait that lies further away than it was stated is over."""
    service = Service(limited(60))
    budget = service.process()
    await service.fails(budget, 1)
    budget.now_s = lambda: 1e9 - 86_400 + asyncio.get_running_loop().time()

    assert await budget.wait(Priority.ASKED, 1) is None
    assert await service.ask(budget) == "page"
