"""Many consoles of separate machines under one organization's rate limit: they share nothing but the service."""

import asyncio
import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Literal, get_args

import pytest

from app.api.budget import Budget, Priority
from app.api.errors import RateLimitedError, ServerFailedError
from app.sync.polling import Polling
from tests.virtual_time import Jobs, in_virtual_time

LimiterKind = Literal["bucket", "fixed window", "sliding window"]
KINDS: tuple[LimiterKind, ...] = get_args(LimiterKind)


@dataclass
class Limiter:
    """So many requests in a window; a bucket holds as many and refills steadily. Time is what the caller says."""

    kind: LimiterKind
    requests: int
    window_s: float
    _passed: list[float] = field(default_factory=list)
    _tokens: float = 0.0
    _filled_at_s: float = float("-inf")

    def wait_s(self, now_s: float) -> float | None:
        """Let a request through, or say in how many seconds one may come."""
        found = self._bucket(now_s) if self.kind == "bucket" else self._window(now_s)
        if found is None:
            self._passed.append(now_s)
        return found

    def _bucket(self, now_s: float) -> float | None:
        per_s = self.requests / self.window_s
        self._tokens = min(float(self.requests), self._tokens + (now_s - self._filled_at_s) * per_s)
        self._filled_at_s = now_s
        self._tokens -= (passes := self._tokens >= 1)
        return None if passes else (1 - self._tokens) / per_s

    def _window(self, now_s: float) -> float | None:
        start_s = now_s - now_s % self.window_s if self.kind == "fixed window" else now_s - self.window_s
        recent = [at_s for at_s in self._passed[-self.requests :] if at_s > start_s or at_s == start_s == now_s]
        if len(recent) < self.requests:
            return None
        return (start_s if self.kind == "fixed window" else recent[0]) + self.window_s - now_s


CONSOLES, PER_MINUTE = 50, 30
DOWN_S, UP_S, END_S = 1200.0, 1500.0, 3600.0


@dataclass
class Service:
    """Allows 30 requests a minute, in one of the usual ways, and is down for five minutes."""

    limiter: Limiter
    says_wait: bool
    statuses: list[tuple[float, int]] = field(default_factory=list)

    async def answer(self) -> None:
        await asyncio.sleep(0.1)
        now = asyncio.get_running_loop().time()
        is_down = DOWN_S <= now < UP_S
        wait_s = None if is_down else self.limiter.wait_s(now)
        self.statuses.append((now, 503 if is_down else 200 if wait_s is None else 429))
        if is_down:
            raise ServerFailedError("down", status=503)
        if wait_s is not None:
            raise RateLimitedError("slow", retry_after_s=math.ceil(wait_s) if self.says_wait else None)

    def share(self, status: int, start_s: float, end_s: float) -> float:
        found = [each for at, each in self.statuses if start_s <= at < end_s]
        return found.count(status) / len(found)


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


@pytest.mark.parametrize(
    ("kind", "says_wait"),
    [("bucket", False), *(pytest.param(kind, True, marks=pytest.mark.campaign) for kind in KINDS)],
)
@in_virtual_time
async def test_an_outage_ends_in_no_storm(kind: str, monkeypatch: pytest.MonkeyPatch, *, says_wait: bool) -> None:
    """Below 20 % of the answers are 429, the limit is used, and minutes after the outage most have polled again."""
    service, loop = Service(Limiter(kind, PER_MINUTE, 60.0), says_wait), asyncio.get_running_loop()
    random.seed(1)
    monkeypatch.setattr("app.sync.polling.time", SimpleNamespace(monotonic=loop.time))
    monkeypatch.setattr(Polling, "_listen", lambda _: asyncio.sleep(math.inf))
    no_cache, consoles = SimpleNamespace(process="one"), list[Sync]()
    for _ in range(CONSOLES):
        budget = Budget(now_s=loop.time, draw=random.random)
        runs, health = Sync(service, budget, 4, Priority.ACTIVE), Sync(service, budget, 1, Priority.HEALTH)
        consoles.append(runs)
        polling = Polling(runs, health, no_cache, NoOrphans(), lambda _: None, 10, 30, budget, schedule=Jobs())
        loop.call_later(10 * random.random(), polling.start)
    await asyncio.sleep(END_S)
    again = sorted(next((at for at in one.polled if at > UP_S), math.inf) - UP_S for one in consoles)
    answered = [at for at, status in service.statuses if at > 1800 and status == 200]

    assert service.share(429, 0, END_S) < 0.2
    assert service.share(429, UP_S, UP_S + 300) < 0.2
    assert len(answered) / (END_S - 1800) > 0.8 * PER_MINUTE / 60
    assert again[CONSOLES // 2] < 600
