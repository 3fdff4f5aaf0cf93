"""A service that executes a write or not, says so or not, in every way a connection can end, and counts for itself."""

import asyncio
import json
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from tests.answers import RUN

REFUSALS: Final = (400, 401, 403, 404, 405, 409, 413, 422, 429)
DOUBTFUL: Final = (204, 206, 302, 307, 406, 408, 418, 424, 425, 499, 500, 502, 503, 504)
LONGEST_STALL_S: Final = 0.4


@dataclass(slots=True)
class Exchange:
    """One request that was read, and the way back to its sender."""

    mark: str
    writer: asyncio.StreamWriter
    execute: Callable[[], None]
    rng: random.Random

    @property
    def answer(self) -> bytes:
        """What the spec promises."""
        return response(201, json.dumps({**RUN, "run_id": f"run_of_{self.mark}"}).encode())

    def maybe(self) -> None:
        """Execute it, or not."""
        if self.rng.random() < 0.5:
            self.execute()

    async def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with RST."""
        reset(self.writer)


def response(status: int, body: bytes = b"{}", headers: str = "") -> bytes:
    """A whole answer."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + (b"" if status == 204 else body)


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def succeed(it: Exchange) -> None:
    it.execute()
    await it.say(it.answer)


async def succeed_late(it: Exchange) -> None:
    it.execute()
    await asyncio.sleep(it.rng.uniform(0, LONGEST_STALL_S))
    await it.say(it.answer)


async def execute_late(it: Exchange) -> None:
    await asyncio.sleep(it.rng.uniform(0, LONGEST_STALL_S))
    it.execute()
    await it.say(it.answer)


async def refuse(it: Exchange) -> None:
    await it.say(response(it.rng.choice(REFUSALS), b'{"message": "no"}'))


async def doubt(it: Exchange) -> None:
    it.maybe()
    await it.say(response(it.rng.choice(DOUBTFUL), b'{"message": "hm"}', "Location: /v1/elsewhere\r\n"))


async def odd_success(it: Exchange) -> None:
    it.maybe()
    odd = (b"<html>", b"", b"{}", b'{"run_id": null}', b'{"run_id": ""}', b"\xff\xfe", b"[]", b"{" * 50_000)
    headers = it.rng.choice(["", "Content-Encoding: gzip\r\n"])
    await it.say(response(it.rng.choice([200, 201, 202]), it.rng.choice(odd), headers))


async def truncate(it: Exchange) -> None:
    it.maybe()
    await it.say(it.answer[: it.rng.randrange(len(it.answer))])
    if it.rng.random() < 0.5:
        it.reset()


async def garble(it: Exchange) -> None:
    it.maybe()
    await it.say(it.rng.choice([b"\x00" * 40, b"HTTP/9.9 yes\r\n\r\n", b"HTTP/1.1 abc X\r\n\r\n", b"220 smtp\r\n"]))


async def finish_silently(it: Exchange) -> None:
    it.maybe()


async def reset_silently(it: Exchange) -> None:
    it.maybe()
    it.reset()


async def stall(it: Exchange) -> None:
    it.maybe()
    await it.say(it.answer[: it.rng.randrange(len(it.answer))])
    await asyncio.sleep(LONGEST_STALL_S)


async def hint_first(it: Exchange) -> None:
    await it.say(b"HTTP/1.1 103 Early Hints\r\n\r\n")
    await it.rng.choice([succeed, truncate, reset_silently])(it)


PLAYS: Final[tuple[Callable[[Exchange], Awaitable[None]], ...]] = (
    *(succeed, succeed, succeed, succeed_late, execute_late, refuse, doubt, odd_success),
    *(truncate, garble, finish_silently, reset_silently, stall, hint_first),
)
UNREAD: Final = 0.08
"""The share of connections that end before the request was read."""


@dataclass(slots=True)
class FaultyPeer:
    """Plays one of the faults for each write; each write's instructions are its mark."""

    rng: random.Random
    plays: tuple[Callable[[Exchange], Awaitable[None]], ...] = PLAYS
    unread: float = UNREAD
    executed: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    """How often each mark was read."""
    played: Counter[str] = field(default_factory=Counter)

    @asynccontextmanager
    async def listening(self, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Listen on loopback; the base address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context, backlog=512)
        scheme = "http" if context is None else "https"
        async with server:
            yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The other side goes away whenever it likes.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                await self._converse(reader, writer)
            finally:
                writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.rng.random() < self.unread:
            self.played["unread"] += 1
            if self.rng.random() < 0.5:
                await reader.read(self.rng.randrange(1, 200))
            if self.rng.random() < 0.5:
                reset(writer)
            return
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
        body = json.loads(await reader.readexactly(int(fields.get("content-length", "0"))) or b"{}")
        if not head.startswith(b"POST"):
            writer.write(response(200, b'{"runs": [], "page_size": 100, "next_token": null, "total_count": 0}'))
            await writer.drain()
            return
        mark = body["instructions"]
        self.received[mark] += 1
        play = self.rng.choice(self.plays)
        self.played[play.__name__] += 1
        await play(Exchange(mark, writer, lambda: self.executed.update([mark]), self.rng))
