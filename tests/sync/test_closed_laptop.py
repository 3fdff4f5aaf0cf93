"""The gap of a closed laptop: the real engine on the scripted service, whose limit it has to find, in virtual time."""

import asyncio
import json
import math
import random
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from app.api.transport import Transport
from app.engine.engine import Engine
from app.sync.polling import Polling
from storage.records import RunFilter
from tests.lab import START, Lab, Received, Respond
from tests.sync.conftest import Desk
from tests.virtual_time import Jobs, in_virtual_time
from tests.waiting import until

HELD, MISSED = 300, 3_000
AWAY = timedelta(hours=2)
LIMIT, WINDOW_S = 12, 10.0
PAGES = MISSED / 100
MOVES_S = 15.0


@dataclass
class Bucket:
    """The service's limit: so many requests in a window; what is left refills steadily."""

    tokens: float = 0.0
    filled_at_s: float = -math.inf

    def wait_s(self, now_s: float) -> float | None:
        """Let a request through, or say in how many seconds one may come."""
        per_s = LIMIT / WINDOW_S
        self.tokens = min(float(LIMIT), self.tokens + (now_s - self.filled_at_s) * per_s)
        self.filled_at_s = now_s
        self.tokens -= (passes := self.tokens >= 1)
        return None if passes else (1 - self.tokens) / per_s


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
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
        body = httpx.ByteStream(json.dumps(step.body).encode())
        return httpx.Response(step.status, stream=body, headers=step.headers)

    async def lane(_: Transport, *, writes: bool) -> httpx.MockTransport:
        assert not writes
        return httpx.MockTransport(answer)

    clock = SimpleNamespace(monotonic=passed_s, time=lambda: START.timestamp() + passed_s())
    for module in ("app.sync.polling", "app.sync.backfill"):
        monkeypatch.setattr(f"{module}.time", clock)
    monkeypatch.setattr(Transport, "_lane", lane)
    monkeypatch.setattr(Polling, "_listen", lambda _: asyncio.sleep(math.inf))
    return Desk(peer, tmp_path)


@in_virtual_time
async def test_the_gap_closes_while_active_runs_stay_current(desk: Desk) -> None:
    """Three thousand runs came while it was closed for two hours; the service allows 12 requests in 10 seconds.

    Polls go on at their interval beside it, so that few pages of history lie between two looks at active runs.
    """
    loop, peer, late = asyncio.get_running_loop(), desk.peer, list[bool]()
    peer.fill(HELD)
    async with desk.engine(clock=lambda: peer.now) as engine:
        await engine.refresh()
        await engine.backfill.run()
        assert (await engine.cache.coverage()).whole
    closed_at = peer.now
    await asyncio.sleep(AWAY.total_seconds())
    for n in range(MISSED - 1):
        peer.put(f"missed_{n:04}", created=closed_at + AWAY * (n + 1) / MISSED)
    peer.put("active", "queued", created=closed_at + AWAY / MISSED / 2)
    bucket = Bucket()
    peer.limit = lambda: bucket.wait_s(loop.time())
    desk.asked()
    opened_s = loop.time()

    async def moves(engine: Engine) -> None:
        for status in ["working", "queued"] * 40:
            peer.move("active", status)
            await asyncio.sleep(MOVES_S)
            detail = await engine.cache.detail("active")
            late.append(detail is None or detail.run.status != status)

    async with desk.engine(clock=lambda: peer.now) as engine:

        async def is_closed() -> bool:
            is_whole = (await engine.cache.coverage()).whole
            return is_whole and await engine.cache.count(RunFilter()) == HELD + MISSED

        engine.client.budget.now_s = lambda: peer.now.timestamp()  # noqa: PLW0108 — time passes
        engine.client.budget.draw = random.Random(7).random
        engine.polling.schedule = Jobs()  # type: ignore[assignment]
        engine.start_polling()
        moving = asyncio.create_task(moves(engine))
        await until(is_closed, "the gap is closed", pause_s=1)
        assert loop.time() < opened_s + 120, [asked.status for asked in peer.requests]
        moving.cancel()
    between, most = 0, 0
    # A page of a gap is asked for by its dates.
    history = [asked for asked in peer.requests if "date_to" in asked.query and asked.status == 200]
    for asked in peer.requests:
        between = 0 if asked.query.get("status") == "working" and asked.status == 200 else between
        between += asked in history
        most = max(most, between)

    assert not any(late)
    assert most <= 1.5 * LIMIT
    assert len(history) <= 1.4 * PAGES
    assert sum(asked.status == 429 for asked in peer.requests) <= 0.1 * len(peer.requests)
