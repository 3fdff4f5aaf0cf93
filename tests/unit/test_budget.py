"""How hard the service may be asked."""

import pytest

from app.api.budget import FAILURES_TO_OPEN, Budget, Priority
from app.api.errors import NotFoundError, RateLimitedError, RequestTimeoutError, ServerFailedError, UnreachableError


class Clock:
    """A monotonic clock that a test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_longer_wait_is_not_shortened_by_a_later_one() -> None:
    """Two 429s in a row: the later end counts, and it ends."""
    clock = Clock()
    budget = Budget(clock)
    budget.note(RateLimitedError("", retry_after_s=30))
    budget.note(RateLimitedError("", retry_after_s=5))
    clock.now_s += 29

    assert budget.wait_s() == pytest.approx(1)
    with pytest.raises(RateLimitedError) as caught:
        async with budget.turn(Priority.ASKED):
            pytest.fail("the service asked for silence")
    assert caught.value.retry_after_s == pytest.approx(1)
    clock.now_s += 1
    async with budget.turn(Priority.ASKED):
        assert budget.wait_s() == 0


async def test_a_429_without_a_wait_holds_nobody_back() -> None:
    """How long to stay away is then the poller's decision."""
    budget = Budget(Clock())
    budget.note(RateLimitedError(""))

    assert budget.wait_s() == 0


async def test_only_failures_in_a_row_count_and_a_refusal_is_none() -> None:
    """A 404 shows that the service is alive."""
    budget = Budget(Clock())
    for _ in range(FAILURES_TO_OPEN - 1):
        budget.note(RequestTimeoutError(""))
    budget.note(NotFoundError("", status=404))
    budget.note(ServerFailedError("", status=500))

    assert (budget.failures, budget.is_open) == (1, False)


async def test_a_probe_that_fails_lets_the_next_one_try() -> None:
    """The circuit never closes for good."""
    budget = Budget(Clock(), failures=FAILURES_TO_OPEN)

    async def probe() -> None:
        async with budget.turn(Priority.ASKED):
            with pytest.raises(UnreachableError):
                async with budget.turn(Priority.ASKED):
                    pytest.fail("one probe at a time")
            raise RequestTimeoutError("still down")

    for _ in range(2):
        with pytest.raises(RequestTimeoutError):
            await probe()

    assert budget.failures == FAILURES_TO_OPEN + 2
    async with budget.turn(Priority.ASKED):
        pass
    assert not budget.is_open


async def test_what_began_before_the_circuit_opened_does_not_end_a_probe() -> None:
    """A slow request that fails late leaves the probe alone."""
    budget = Budget(Clock(), failures=FAILURES_TO_OPEN - 1)
    slow = budget.turn(Priority.ASKED)
    await slow.__aenter__()
    budget.note(RequestTimeoutError(""))
    probe = budget.turn(Priority.ASKED)
    await probe.__aenter__()
    await slow.__aexit__(None, None, None)
    budget.failures = FAILURES_TO_OPEN

    with pytest.raises(UnreachableError):
        async with budget.turn(Priority.ASKED):
            pytest.fail("the probe is still under way")
    await probe.__aexit__(None, None, None)
