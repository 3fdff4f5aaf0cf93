"""The rate limit: one bucket in the database, spent in handfuls by many processes, never more than it holds."""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.store import rate_limits
from service.store.database import Database
from service.store.rate_limits import RateLimiter

NOW = 1_700_000_000_000_000


class ManualClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.micros = NOW

    def __call__(self) -> int:
        return self.micros

    def monotonic(self) -> float:
        return self.micros / 1_000_000

    def pass_s(self, seconds: float) -> None:
        self.micros += round(seconds * 1_000_000)


def limiter(database: Database, per_minute: int, clock: ManualClock) -> RateLimiter:
    return RateLimiter(database, per_minute, clock, clock.monotonic)


def test_a_minute_s_worth_passes_at_once_and_then_one_at_a_time(database: Database) -> None:
    """Twelve at once; the thirteenth waits the five seconds until there is one again."""
    clock = ManualClock()
    rate = limiter(database, 12, clock)
    at_once = [rate.wait_s("org") for _ in range(13)]
    clock.pass_s(4.9)
    early = rate.wait_s("org")
    clock.pass_s(0.2)

    assert at_once == [None] * 12 + [5]
    assert (early, rate.wait_s("org"), rate.wait_s("org")) == (1, None, 5)


def test_one_organization_does_not_pay_for_another(database: Database) -> None:
    """Each has a bucket of its own."""
    rate = limiter(database, 1, ManualClock())

    assert [rate.wait_s("a"), rate.wait_s("a"), rate.wait_s("b")] == [None, 60, None]


@pytest.mark.parametrize("seconds", [0, -3600], ids=["restart", "clock set back"])
def test_neither_a_restart_nor_a_clock_set_back_refills_or_blocks(database: Database, seconds: float) -> None:
    """The bucket is in the database: a new process finds it as it was, and the wait is the usual one."""
    clock = ManualClock()
    assert limiter(database, 1, clock).wait_s("org") is None
    clock.pass_s(seconds)

    assert limiter(database, 1, clock).wait_s("org") == 60


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 5)), max_size=80))
def test_no_order_of_requests_gets_more_than_the_bucket_held(
    database: Database, requests: list[tuple[int, float]]
) -> None:
    """Three processes, any order, any pauses: at most a minute's worth and what flowed in since."""
    clock, organization = ManualClock(), secrets.token_hex(8)
    processes = [limiter(database, 30, clock) for _ in range(3)]
    passed = 0
    for number, pause_s in requests:
        clock.pass_s(pause_s)
        passed += processes[number].wait_s(organization) is None

    assert passed <= 30 + (clock.micros - NOW) / 1_000_000 * 30 / 60


def test_processes_that_ask_at_once_get_what_there_is(postgres_url: str) -> None:
    """Eight connections to PostgreSQL that take at the same moment: ten of ten, and never eleven."""
    database = Database(postgres_url)
    database.migrate()
    start = threading.Barrier(8)

    def ask(_: int) -> int:
        start.wait()
        taken = 0
        for _ in range(5):
            with database.write() as connection:
                taken += rate_limits.take(connection, "org", 1, 10, lambda: NOW)[0]
        return taken

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 10
    database.close()
