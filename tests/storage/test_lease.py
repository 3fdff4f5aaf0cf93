"""The lease: one holder at a time, and free again when nobody renews it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.cache import Cache
from storage.lease import Lease

CLAIM = """
import asyncio, sys
from pathlib import Path
from storage.cache import Cache
from storage.lease import Lease

async def main():
    async with await Cache.open(Path(sys.argv[2])) as cache:
        print("ready", flush=True)
        sys.stdin.readline()
        print(await Lease(cache).acquire("poller", sys.argv[1], 60))

asyncio.run(main())
"""


@pytest.fixture
def lease(cache: Cache) -> Lease:
    return Lease(cache)


async def test_one_holder_at_a_time(lease: Lease) -> None:
    """Others are refused, the holder may ask again, and other names are other leases."""
    assert await lease.acquire("poller", "ann", 30)
    assert not await lease.acquire("poller", "bob", 30)
    assert await lease.acquire("poller", "ann", 30)
    assert await lease.acquire("backfill", "bob", 30)


async def test_a_lease_runs_out(lease: Lease, forward: Callable[[float], None]) -> None:
    """A holder that fell silent loses it, and does not get it back while another one holds it."""
    await lease.acquire("poller", "ann", 30)
    forward(29)
    assert not await lease.acquire("poller", "bob", 30)
    forward(1)

    assert await lease.acquire("poller", "bob", 30)
    assert not await lease.acquire("poller", "ann", 30)


async def test_renewing_prolongs(lease: Lease, forward: Callable[[float], None]) -> None:
    """From now, not from the end of the old term."""
    await lease.acquire("poller", "ann", 30)
    forward(20)
    assert await lease.acquire("poller", "ann", 30)
    forward(20)

    assert not await lease.acquire("poller", "bob", 30)


async def test_only_the_holder_releases(lease: Lease) -> None:
    """Then it is free at once."""
    await lease.acquire("poller", "ann", 30)
    await lease.release("poller", "bob")
    assert not await lease.acquire("poller", "bob", 30)

    await lease.release("poller", "ann")
    assert await lease.acquire("poller", "bob", 30)


async def test_a_clock_a_little_behind_takes_nothing(lease: Lease, forward: Callable[[float], None]) -> None:
    """Clocks are corrected by moments; a lease that was just given stays where it is."""
    await lease.acquire("poller", "ann", 30)
    forward(-2)

    assert not await lease.acquire("poller", "bob", 30)


async def test_a_clock_set_back_does_not_lock_everybody_out(lease: Lease, forward: Callable[[float], None]) -> None:
    """A lease that would last longer than its whole term was given by another clock."""
    await lease.acquire("poller", "ann", 30)
    forward(-86_400)

    assert await lease.acquire("poller", "bob", 30)


def test_processes_that_claim_at_once_get_one_lease(race: Callable[..., list[str]], cache_path: Path) -> None:
    """Exactly one of them."""
    assert sorted(race(CLAIM, 6, str(cache_path))) == ["False"] * 5 + ["True"]
