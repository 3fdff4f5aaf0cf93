"""The gap of a closed laptop: the real engine on the scripted service, whose limit it has to find, in virtual time."""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from app.api.errors import RateLimitedError
from app.api.transport import Transport
from app.engine.engine import Engine
from app.sync.polling import Polling
from storage.records import RunFilter
from tests.lab import START, Lab, Received, Respond
from tests.limiters import KINDS, Limiter, LimiterKind
from tests.sync.conftest import Desk
from tests.virtual_time import Jobs, in_virtual_time
from tests.waiting import until

HELD, MISSED = 300, 3_000
AWAY = timedelta(hours=2)
LIMIT, WINDOW_S = 12, 10.0
PAGES = MISSED / 100
MOVES_S = 15.0


@dataclass
class Laptop:
    """A data folder whose console was closed for two hours, and is about to be opened."""

    peer: Lab
    desk: Desk
    seed: int = 7
    """Of the budget's draws."""
    limiter: Limiter | None = None
    """Allows 12 requests in 10 seconds, in one of the usual ways."""

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Engine]:
        async with self.desk.engine(clock=lambda: self.peer.now) as engine:
            engine.client.budget.now_s = lambda: self.peer.now.timestamp()  # noqa: PLW0108 — time passes
            engine.client.budget.draw = random.Random(self.seed).random
            yield engine

    async def close_for_hours(self, kind: LimiterKind) -> None:
        """Three thousand runs come while it is closed; one of them goes on."""
        self.peer.fill(HELD)
        async with self.engine() as engine:
            await engine.refresh()
            await engine.backfill.run()
            assert (await engine.cache.coverage()).whole
        closed_at = self.peer.now
        await asyncio.sleep(AWAY.total_seconds())
        for n in range(MISSED - 1):
            self.peer.put(f"missed_{n:04}", created=closed_at + AWAY * (n + 1) / MISSED)
        self.peer.put("active", "queued", created=closed_at + AWAY / MISSED / 2)
        self.limiter = limiter = Limiter(kind, LIMIT, WINDOW_S)
        self.peer.limit = lambda: limiter.wait_s(asyncio.get_running_loop().time())
        self.peer.requests.clear()


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Requests take 50 ms; nothing else takes time, and all clocks are the loop's."""

    def passed_s() -> float:
        return asyncio.get_running_loop().time()

    peer = Lab(clock=lambda: START + timedelta(seconds=passed_s()), is_dated=False, port=9)

    async def answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.05)
        target, token = request.url.raw_path.decode(), {"authorization": "Bearer test-token"}
        received = Received(request.method, target, token, request.content)
        peer.requests.append(received)
        step = peer.answer(received)
        assert isinstance(step, Respond)
        received.status = step.status
        return httpx.Response(
            step.status, stream=httpx.ByteStream(json.dumps(step.body).encode()), headers=step.headers
        )

    async def lane(_: Transport, *, writes: bool) -> httpx.MockTransport:
        assert not writes
        return httpx.MockTransport(answer)

    clock = SimpleNamespace(monotonic=passed_s, time=lambda: START.timestamp() + passed_s())
    for module in ("app.sync.polling", "app.sync.backfill"):
        monkeypatch.setattr(f"{module}.time", clock)
    monkeypatch.setattr(Transport, "_lane", lane)
    monkeypatch.setattr(Polling, "_listen", lambda _: asyncio.sleep(math.inf))
    return Laptop(peer, Desk(peer, tmp_path))


async def is_closed(engine: Engine) -> bool:
    is_whole = (await engine.cache.coverage()).whole
    return is_whole and await engine.cache.count(RunFilter()) == HELD + MISSED


def is_history(asked: Received) -> bool:
    """A page of a gap: asked for by its dates."""
    return "date_to" in asked.query and asked.status == 200


OTHERS = [pytest.param(kind, marks=pytest.mark.campaign) for kind in KINDS[1:]]


@pytest.mark.parametrize("kind", [KINDS[0], *OTHERS])
@in_virtual_time
async def test_the_gap_closes_while_active_runs_stay_current(kind: LimiterKind, laptop: Laptop) -> None:
    """Polls go on at their interval beside it, so that few pages of history lie between two looks at active runs."""
    await laptop.close_for_hours(kind)
    loop, peer = asyncio.get_running_loop(), laptop.peer
    opened_s, late = loop.time(), []

    async def moves(engine: Engine) -> None:
        for status in ["working", "queued"] * 40:
            peer.move("active", status)
            await asyncio.sleep(MOVES_S)
            detail = await engine.cache.detail("active")
            late.append(detail is None or detail.run.status != status)

    async with laptop.engine() as engine:
        engine.polling.schedule = Jobs()  # type: ignore[assignment]
        engine.start_polling()
        moving = asyncio.create_task(moves(engine))
        await until(lambda: is_closed(engine), "the gap is closed", pause_s=1)
        assert loop.time() < opened_s + 120, [asked.status for asked in peer.requests]
        moving.cancel()
    between, most = 0, 0
    for asked in peer.requests:
        between = 0 if asked.query.get("status") == "working" and asked.status == 200 else between
        between += is_history(asked)
        most = max(most, between)

    assert not any(late)
    assert most <= 1.5 * LIMIT
    assert sum(is_history(asked) for asked in peer.requests) <= 1.4 * PAGES
    assert sum(asked.status == 429 for asked in peer.requests) <= 0.1 * len(peer.requests)


@pytest.mark.parametrize("others", [LIMIT, 0])
@pytest.mark.parametrize("kind", [KINDS[0], *OTHERS])
@in_virtual_time
async def test_a_person_waits_for_little_more_than_the_limit_asks_for(
    kind: LimiterKind, others: int, laptop: Laptop
) -> None:
    """One early 429 does not make `runs sync` slow, whether this process or others spent the limit before."""
    await laptop.close_for_hours(kind)
    loop, peer = asyncio.get_running_loop(), laptop.peer
    assert laptop.limiter is not None
    for _ in range(others):
        laptop.limiter.wait_s(loop.time())
    began_s = loop.time()
    async with laptop.engine() as engine:
        steps = [engine.runs.refresh, partial(engine.backfill.run, is_asked=True)]
        while steps:
            try:
                await steps[0]()
                del steps[0]
            except RateLimitedError as error:
                await asyncio.sleep(error.retry_after_s or 10)
        assert await is_closed(engine)

    # What others spent is waited out first.
    longest_s = 2 * PAGES * WINDOW_S / LIMIT + (WINDOW_S if others else 0)
    assert loop.time() < began_s + longest_s
    assert sum(asked.status == 429 for asked in peer.requests) <= 0.5 * len(peer.requests)
