"""Many consoles of separate machines under one organization's rate limit: they share nothing but the service."""

import asyncio
import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal

import pytest

from app.api.budget import Budget, Priority
from app.api.errors import RateLimitedError, ServerFailedError
from app.sync.polling import Polling
from tests.limiters import KINDS, Limiter
from tests.virtual_time import Jobs, in_virtual_time

CONSOLES = 50
NO_CACHE = SimpleNamespace(process="one")
PER_MINUTE = 30
OUTAGE_S = (1200.0, 1500.0)
END_S = 3600.0


@dataclass
class Service:
    """Allows 30 requests a minute, in one of the usual ways, and is down for five minutes."""

    kind: Literal["bucket", "bucket without a wait", "fixed window", "sliding window"]
    statuses: list[tuple[float, int]] = field(default_factory=list)
    passed: list[float] = field(default_factory=list)
    limiter: Limiter = field(init=False)

    def __post_init__(self) -> None:
        found = next(kind for kind in KINDS if self.kind.startswith(kind))
        self.limiter = Limiter(found, PER_MINUTE, 60.0)

    async def answer(self) -> None:
        await asyncio.sleep(0.1)
        now = asyncio.get_running_loop().time()
        if OUTAGE_S[0] <= now < OUTAGE_S[1]:
            self.statuses.append((now, 503))
            raise ServerFailedError("down", status=503)
        if (wait_s := self.limiter.wait_s(now)) is not None:
            self.statuses.append((now, 429))
            raise RateLimitedError("slow", retry_after_s=None if "without" in self.kind else math.ceil(wait_s))
        self.passed.append(now)
        self.statuses.append((now, 200))

    def refused_share(self, start_s: float, end_s: float) -> float:
        statuses = [status for at, status in self.statuses if start_s <= at < end_s]
        return statuses.count(429) / len(statuses)


@dataclass
class Sync:
    """Polls as the real one does when nothing changes."""

    service: Service
    budget: Budget
    requests: int
    priority: Priority
    polled: list[float] = field(default_factory=list)

    async def refresh(self) -> None:
        for _ in range(self.requests):
            await self.budget.in_turn(self.priority, self.service.answer)
        self.polled.append(asyncio.get_running_loop().time())


class NoOrphans:
    """A ledger without writes."""

    problem = None

    async def adopt_orphans(self) -> tuple[()]:
        return ()


async def hour(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Sync]:
    """An hour of fifty consoles; what each one's runs were asked for."""
    loop = asyncio.get_running_loop()
    random.seed(1)
    monkeypatch.setattr("app.sync.polling.time", SimpleNamespace(monotonic=loop.time))
    monkeypatch.setattr(Polling, "_listen", lambda _: asyncio.sleep(math.inf))
    consoles: list[Sync] = []
    for _ in range(CONSOLES):
        budget = Budget(now_s=loop.time, draw=random.random)
        runs = Sync(service, budget, 4, Priority.ACTIVE)
        health = Sync(service, budget, 1, Priority.HEALTH)
        consoles.append(runs)
        polling = Polling(runs, health, NO_CACHE, NoOrphans(), lambda _: None, 10, 30, budget, schedule=Jobs())
        loop.call_later(10 * random.random(), polling.start)
    await asyncio.sleep(END_S)
    return consoles


SOFTER = [pytest.param(kind, marks=pytest.mark.campaign) for kind in ("bucket", "fixed window", "sliding window")]


@pytest.mark.parametrize("kind", ["bucket without a wait", *SOFTER])
@in_virtual_time
async def test_an_outage_ends_in_no_storm(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 20 % of the answers are 429, the limit is used, and minutes after the outage most have polled again."""
    service = Service(kind)
    consoles = await hour(service, monkeypatch)
    again = sorted(next((at for at in one.polled if at > OUTAGE_S[1]), math.inf) - OUTAGE_S[1] for one in consoles)
    answered_s = sum(1 for at in service.passed if at > 1800) / (END_S - 1800)

    assert service.refused_share(0, END_S) < 0.2
    assert service.refused_share(OUTAGE_S[1], OUTAGE_S[1] + 300) < 0.2
    assert answered_s > 0.8 * PER_MINUTE / 60
    assert again[CONSOLES // 2] < 600
