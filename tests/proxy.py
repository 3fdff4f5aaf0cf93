"""Proxies on loopback: one with a login, for clients and the service, and one in front of a database."""

import asyncio
import base64
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from tests.lab import Server, free_port

LOGIN = "Basic " + base64.b64encode(b"user:p@w").decode()
ADDRESS = "http://user:p%40w@127.0.0.1:{port}"


@dataclass(kw_only=True, eq=False)
class Proxy(Server):
    """A proxy for tunnels and SOCKS 5, which maps certain names, or every name, to ports of this machine."""

    leads_to: int | Mapping[str, int]
    asked: list[str] = field(default_factory=list)
    """The requests that it got, in the proxy's own words."""
    scheme: str = "Basic"
    """The authentication scheme that it demands."""

    async def converse(self, reader: StreamReader, writer: StreamWriter) -> None:
        first = await reader.readexactly(1)
        if await (self._socks(reader, writer) if first == b"\x05" else self._tunnel(first, reader, writer)):
            name = self.asked[-1].split()[1].rpartition(":")[0]
            port = self.leads_to if isinstance(self.leads_to, int) else self.leads_to[name]
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_pump(reader, their_writer), _pump(their_reader, writer))

    async def _tunnel(self, first: bytes, reader: StreamReader, writer: StreamWriter) -> bool:
        lines = (first + await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.asked.append(lines[0])
        if f"proxy-authorization: {LOGIN}".lower() not in map(str.lower, lines):
            status = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n"
            writer.write(status + f"Proxy-Authenticate: {self.scheme}\r\n\r\n".encode())
            return False
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        return True

    async def _socks(self, reader: StreamReader, writer: StreamWriter) -> bool:
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x00")
        await reader.readexactly(4)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        await reader.readexactly(2)
        self.asked.append(f"SOCKS {name.decode()}")
        writer.write(b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00")
        return True


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class DatabaseLink(Server):
    """The network before a database, once started. `holds` delays bytes; `loses` drops them without closing."""

    def __init__(self, target: int) -> None:
        super().__init__(port=free_port())
        self._target, self._flows = target, asyncio.Event()
        self._kind: Literal["carries", "holds", "loses"] = "carries"
        self._flows.set()

    def become(self, kind: Literal["carries", "holds", "loses"]) -> None:
        """Switch to this behaviour."""
        self._kind = kind
        self.loop.call_soon_threadsafe(self._flows.clear if kind == "holds" else self._flows.set)

    async def converse(self, reader: StreamReader, writer: StreamWriter) -> None:
        await self._flows.wait()
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        lost = asyncio.Event()
        ways = [(reader, to_server), (server, writer)]
        carrying = [asyncio.create_task(self._carry(*way, lost)) for way in ways]
        await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
        for task in carrying:
            task.cancel()
        to_server.close()

    async def _carry(self, source: StreamReader, target: StreamWriter, lost: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                await self._flows.wait()
                if self._kind == "loses":
                    lost.set()
                if not lost.is_set():
                    target.write(data)
                    await target.drain()
        if lost.is_set():
            # A silent network does not deliver the close either.
            await asyncio.Event().wait()
