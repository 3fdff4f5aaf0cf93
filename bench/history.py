"""A made-up history of runs to measure with: the same every time."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from storage.cache.cache import Cache
from storage.records import Repository, Run

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PAGE = 100
WINDOWS = 8
"""Pages that are fetched at the same time."""
REPOSITORIES = tuple(Repository.parse(f"acme/service-{n}") for n in range(40))


def runs(count: int) -> Iterator[Run]:
    """So many runs, newest first, one a minute."""
    chance = random.Random(7)
    for n in range(count):
        created = NOW - timedelta(minutes=n)
        updated = created + timedelta(seconds=chance.randint(10, 900))
        status = chance.choices(("completed", "failed", "working", "queued"), (90, 8, 1, 1))[0]
        run_id = f"run_{count - n:026d}"
        yield Run(
            run_id, status, f"agent/topic-{chance.randint(0, 5000)}", chance.choice(REPOSITORIES), created, updated,
            f'{{"run_id": "{run_id}", "status": "{status}"}}',
        )  # fmt: skip


def pages(count: int) -> Iterator[list[Run]]:
    """So many runs, as a service gives them out."""
    every = runs(count)
    while page := list(islice(every, PAGE)):
        yield page


def fill(path: Path, count: int) -> None:
    """Makes a cache with so many runs."""
    store(path, pages(count))


def store(path: Path, every: Iterable[list[Run]]) -> None:
    """Puts these pages into a cache, some at the same time, as the backfill does."""
    asyncio.run(_store(path, iter(every)))


async def _store(path: Path, every: Iterator[list[Run]]) -> None:
    async with await Cache.open(path) as cache:
        while some := list(islice(every, WINDOWS)):
            await asyncio.gather(*(cache.store_runs(page, asked_at=NOW) for page in some))
