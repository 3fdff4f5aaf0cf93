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
from app.polling import Polling
from app.schedule import Job
from tests.virtual_time import in_virtual_time

CONSOLES = 100
NO_CACHE = SimpleNamespace(process="one")
PER_MINUTE = 60
OUTAGE_S = (1200.0, 1500.0)
END_S = 3600.0


@dataclass
class Service:
    """Allows 60 requests a minute, in one of the usual ways, and is down for five minutes."""

    kind: Literal["bucket", "bucket without a wait", "fixed window", "sliding window"]
    statuses: list[tuple[float, int]] = field(default_factory=list)
    passed: list[float] = field(default_factory=list)
    tokens: float = PER_MINUTE
    filled_at_s: float = 0.0

    async def answer(self) -> None:
        await asyncio.sleep(0.1)
        now = asyncio.get_running_loop().time()
        if OUTAGE_S[0] <= now < OUTAGE_S[1]:
            self.statuses.append((now, 503))
            raise ServerFailedError("down", status=503)
        if (wait_s := self._refused(now)) is not None:
            self.statuses.append((now, 429))
            raise RateLimitedError("slow", retry_after_s=None if "without" in self.kind else math.ceil(wait_s))
        self.passed.append(now)
        self.statuses.append((now, 200))

    def _refused(self, now: float) -> float | None:
        if self.kind.startswith("bucket"):
            self.tokens = min(PER_MINUTE, self.tokens + (now - self.filled_at_s) * PER_MINUTE / 60)
            self.filled_at_s = now
            self.tokens -= (passes := self.tokens >= 1)
            return None if passes else (1 - self.tokens) * 60 / PER_MINUTE
        start = now - now % 60 if self.kind == "fixed window" else now - 60
        recent = [at for at in self.passed[-PER_MINUTE:] if at > start]
        return (
            None if len(recent) < PER_MINUTE else (start + 60 if self.kind == "fixed window" else recent[0]) + 60 - now
        )

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
            await self.budget.ask(self.priority, self.service.answer)
        self.polled.append(asyncio.get_running_loop().time())


class Jobs:
    """Runs jobs as a schedule does, by the loop's clock alone."""

    def start(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def add(self, job: Job) -> None:
        self.tasks.append(asyncio.create_task(self._run(job)))

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _run(self, job: Job) -> None:
        while True:  # noqa: ASYNC110 — what a schedule is
            await asyncio.sleep(await job.work())


class AlwaysMine:
    """A lease on a machine with one console."""

    async def acquire(self, *_: object) -> bool:
        return True


class NoOrphans:
    """A ledger without writes."""

    problem = None

    async def adopt_orphans(self) -> tuple[()]:
        return ()


async def hour(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Sync]:
    """An hour of a hundred consoles; what each one's runs were asked for."""
    loop = asyncio.get_running_loop()
    random.seed(1)
    monkeypatch.setattr("app.polling.time", SimpleNamespace(monotonic=loop.time))
    monkeypatch.setattr(Polling, "_listen", lambda _: asyncio.sleep(math.inf))
    consoles: list[Sync] = []
    for _ in range(CONSOLES):
        budget = Budget(now_s=loop.time, draw=random.random)
        runs = Sync(service, budget, 4, Priority.ACTIVE)
        health = Sync(service, budget, 1, Priority.HEALTH)
        consoles.append(runs)
        polling = Polling(runs, health, NO_CACHE, NoOrphans(), AlwaysMine(), print, 10, 30, budget, _schedule=Jobs())
        loop.call_later(10 * random.random(), polling.start)
    await asyncio.sleep(END_S)
    return consoles


@pytest.mark.parametrize("kind", ["bucket", "bucket without a wait", "fixed window", "sliding window"])
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
