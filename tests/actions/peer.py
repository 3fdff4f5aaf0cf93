"""A service that executes a write or not, says so or not, in every way a connection can end, and counts for itself."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final

from tests.lab import RUN, Drop, Raw, Received, Respond, Server, Step

REFUSALS: Final = (400, 401, 403, 404, 405, 409, 413, 422, 429)
DOUBTFUL: Final = (204, 206, 302, 307, 406, 408, 418, 424, 425, 499, 500, 502, 503, 504)
LONGEST_STALL_S: Final = 0.4
UNREAD: Final = 0.08
"""The share of connections that end before the request was read."""


def seeded(size: int) -> random.Random:
    """The same chances in every run of a test; others in each campaign, which prints its seed."""
    seed = 1 if size <= 100 else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)


@dataclass(slots=True)
class Exchange:
    """One write that was read."""

    mark: str
    execute: Callable[[], None]
    rng: random.Random

    @property
    def answer(self) -> Respond:
        """What the spec promises."""
        return Respond(201, {**RUN, "run_id": f"run_of_{self.mark}"})

    @property
    def whole(self) -> bytes:
        """The answer as it is sent."""
        body = json.dumps(self.answer.body)
        return f"HTTP/1.1 201 X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    def part(self) -> bytes:
        """The beginning of the answer, or nothing of it."""
        return self.whole[: self.rng.randrange(len(self.whole))]

    def maybe(self) -> None:
        """Execute it, or not."""
        if self.rng.random() < 0.5:
            self.execute()


Play = Callable[[Exchange], Awaitable[Step]]


async def succeed(it: Exchange) -> Step:
    it.execute()
    return it.answer


async def succeed_late(it: Exchange) -> Step:
    it.execute()
    await asyncio.sleep(it.rng.uniform(0, LONGEST_STALL_S))
    return it.answer


async def execute_late(it: Exchange) -> Step:
    await asyncio.sleep(it.rng.uniform(0, LONGEST_STALL_S))
    it.execute()
    return it.answer


async def refuse(it: Exchange) -> Step:
    return Respond(it.rng.choice(REFUSALS), {"message": "no"})


async def doubt(it: Exchange) -> Step:
    it.maybe()
    return Respond(it.rng.choice(DOUBTFUL), {"message": "hm"}, {"Location": "/v1/elsewhere"})


async def odd_success(it: Exchange) -> Step:
    it.maybe()
    odd = (b"<html>", b"", b"{}", b'{"run_id": null}', b'{"run_id": ""}', b"\xff\xfe", b"[]", b"{" * 50_000)
    headers = it.rng.choice([{}, {"Content-Encoding": "gzip"}])
    return Respond(it.rng.choice([200, 201, 202]), it.rng.choice(odd), headers)


async def truncate(it: Exchange) -> Step:
    it.maybe()
    return Raw(it.part(), it.rng.choice(["close", "reset"]))


async def garble(it: Exchange) -> Step:
    it.maybe()
    return Raw(it.rng.choice([b"\x00" * 40, b"HTTP/9.9 yes\r\n\r\n", b"HTTP/1.1 abc X\r\n\r\n", b"220 smtp\r\n"]))


async def end_silently(it: Exchange) -> Step:
    it.maybe()
    return Drop(then=it.rng.choice(["close", "reset"]))


async def stall(it: Exchange) -> Step:
    it.maybe()
    return Raw(it.part(), after_s=LONGEST_STALL_S)


async def hint_first(it: Exchange) -> Step:
    rest = b""
    if it.rng.random() < 0.5:
        it.execute()
        rest = it.whole
    elif it.rng.random() < 0.5:
        it.maybe()
        rest = it.part()
    return Raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" + rest, it.rng.choice(["close", "reset"]))


PLAYS: Final[tuple[Play, ...]] = (
    *(succeed, succeed, succeed, succeed_late, execute_late, refuse, refuse, refuse, doubt, odd_success),
    *(truncate, garble, end_silently, end_silently, stall, hint_first),
)


@dataclass(slots=True)
class FaultyPeer:
    """Plays one of the faults for each write; each write's instructions are its mark."""

    rng: random.Random
    plays: tuple[Play, ...] = PLAYS
    unread: float = UNREAD
    executed: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    """How often each mark was read."""
    played: Counter[str] = field(default_factory=Counter)

    @asynccontextmanager
    async def listening(self, context: SSLContext | None = None) -> AsyncIterator[str]:
        """Listen on the running loop; the base address."""
        server = Server(tls=context, greet=self._greeting)
        server.otherwise = self._play
        async with server:
            yield server.base_url

    def _greeting(self) -> Drop | None:
        if self.rng.random() >= self.unread:
            return None
        self.played["unread"] += 1
        return Drop(self.rng.choice(["accepted", "unread"]), self.rng.choice(["close", "reset"]))

    async def _play(self, request: Received) -> Step:
        if request.method != "POST":
            return Respond(200, {"runs": [], "page_size": 100, "next_token": None, "total_count": 0})
        mark = request.json()["instructions"]
        self.received[mark] += 1
        play = self.rng.choice(self.plays)
        self.played[play.__name__] += 1
        return await play(Exchange(mark, lambda: self.executed.update([mark]), self.rng))
